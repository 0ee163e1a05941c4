#ifndef STRATA_RESIDUAL_OPTION_READER_H_
#define STRATA_RESIDUAL_OPTION_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "residual/mechanism.h"

namespace strata {

// Reads the options of one mechanism out of a spec. Every option is asked for once, given or not; Finish then
// refuses what nobody asked for and names the nearest known option. All errors are usage errors (exit 2).
class OptionReader {
 public:
  explicit OptionReader(const ResidualSpec& spec) : spec_(spec) {}
  bool Given(const std::string& name) const { return spec_.options.count(name) > 0; }
  int64_t Integer(const std::string& name, int64_t fallback, int64_t least, int64_t most);
  double Real(const std::string& name, double fallback, double least);
  std::string Choice(const std::string& name, const std::vector<std::string>& choices);  // the first: default
  [[noreturn]] void Refuse(const std::string& name, const std::string& expected) const;
  void Finish() const;

 private:
  const std::string* Find(const std::string& name);

  const ResidualSpec& spec_;
  std::vector<std::string> known_;
};

}  // namespace strata

#endif  // STRATA_RESIDUAL_OPTION_READER_H_
