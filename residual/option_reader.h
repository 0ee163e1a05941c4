#ifndef STRATA_RESIDUAL_OPTION_READER_H_
#define STRATA_RESIDUAL_OPTION_READER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace strata {

// A mechanism as given on the command line: a name and options.
struct ResidualSpec {
  std::string name = "standard";
  std::map<std::string, std::string> options;
};
std::string ToString(const ResidualSpec& spec);

// One option as documented.
struct OptionDoc {
  std::string name, fallback, range, about;
};

// Reads the options of one mechanism out of a spec. Every option is asked for once, given or not, with its
// documentation; Finish then refuses what nobody asked for and names the nearest known option. All errors are
// usage errors (exit 2).
class OptionReader {
 public:
  explicit OptionReader(const ResidualSpec& spec) : spec_(spec) {}
  bool Given(const std::string& name) const { return spec_.options.count(name) > 0; }
  // why: of the limits, for the error message.
  int64_t Integer(const std::string& name, int64_t fallback, int64_t least, int64_t most,
                  const std::string& about, const std::string& why = "");
  double Real(const std::string& name, double fallback, double least, const std::string& about);
  bool Boolean(const std::string& name, bool fallback, const std::string& about);
  // The first choice is the default.
  std::string Choice(const std::string& name, const std::vector<std::string>& choices,
                     const std::string& about);
  [[noreturn]] void Refuse(const std::string& name, const std::string& expected) const;
  void Finish() const;
  const std::vector<OptionDoc>& docs() const { return docs_; }

 private:
  const std::string* Find(OptionDoc doc);

  const ResidualSpec& spec_;
  std::vector<OptionDoc> docs_;
};

}  // namespace strata

#endif  // STRATA_RESIDUAL_OPTION_READER_H_
