#include "residual/option_reader.h"

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace strata {
namespace {

template <class Number>
bool Parse(const std::string& text, Number* value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, *value);
  return result.ec == std::errc() && result.ptr == end;
}

}  // namespace

const std::string* OptionReader::Find(const std::string& name) {
  known_.push_back(name);
  const auto found = spec_.options.find(name);
  return found == spec_.options.end() ? nullptr : &found->second;
}

void OptionReader::Refuse(const std::string& name, const std::string& expected) const {
  const auto found = spec_.options.find(name);
  FailUsage("{}: {}: expected {}, got \"{}\"", spec_.name, name, expected,
            found == spec_.options.end() ? "" : found->second);
}

int64_t OptionReader::Integer(const std::string& name, int64_t fallback, int64_t least, int64_t most) {
  const std::string* text = Find(name);
  if (text == nullptr) return fallback;
  int64_t value = 0;
  if (!Parse(*text, &value) || value < least || value > most) {
    Refuse(name, fmt::format("an integer from {} to {}", least, most));
  }
  return value;
}

double OptionReader::Real(const std::string& name, double fallback, double least) {
  const std::string* text = Find(name);
  if (text == nullptr) return fallback;
  double value = 0;
  if (!Parse(*text, &value) || !std::isfinite(value) || value < least) {
    Refuse(name, fmt::format("a number of at least {}", least));
  }
  return value;
}

std::string OptionReader::Choice(const std::string& name, const std::vector<std::string>& choices) {
  const std::string* text = Find(name);
  if (text == nullptr) return choices.front();
  for (const std::string& choice : choices) {
    if (*text == choice) return choice;
  }
  Refuse(name, fmt::format("{}", fmt::join(choices, " or ")));
}

void OptionReader::Finish() const {
  for (const auto& [name, value] : spec_.options) {
    bool found = false;
    for (const std::string& known : known_) found = found || known == name;
    if (found) continue;
    if (known_.empty()) FailUsage("{}: expected no options, got \"{}\"", spec_.name, name);
    FailUsage("{}: unknown option \"{}\"; did you mean \"{}\"? Options: {}", spec_.name, name,
              Nearest(name, known_), fmt::join(known_, ", "));
  }
}

}  // namespace strata
