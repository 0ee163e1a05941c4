#ifndef STRATA_BASE_ERROR_H_
#define STRATA_BASE_ERROR_H_

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace strata {

enum class ExitCode { kOk = 0, kFailed = 1, kUsage = 2 };

// A message that may hold what users or files gave, fit for a terminal: one line, control characters as "?",
// at most 2000 bytes, the middle left out.
std::string Printable(const std::string& message);

// The one exception of the library. The text is Printable, reads `where: expected X, got Y` and fits on one
// line.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::kFailed)
      : std::runtime_error(Printable(message)), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Throws an Error that ends the program with exit code 1: something failed.
template <class... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

// Throws an Error that ends the program with exit code 2: the request itself is wrong.
template <class... Args>
[[noreturn]] void FailUsage(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), ExitCode::kUsage);
}

// The candidate closest to `name` by edit distance ("" when there is none): for messages on unknown names.
std::string Nearest(const std::string& name, const std::vector<std::string>& candidates);

// a * b, or an Error when the product does not fit 63 bits. `what` names the quantity.
int64_t CheckedProduct(int64_t a, int64_t b, const char* what);

}  // namespace strata

#endif  // STRATA_BASE_ERROR_H_
