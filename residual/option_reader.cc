#include "residual/option_reader.h"

#include <charconv>
#include <cmath>
#include <limits>

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

std::string ToString(const ResidualSpec& spec) {
  std::string text = spec.name;
  char separator = ':';
  for (const auto& [name, value] : spec.options) {
    text += separator + name + "=" + value;
    separator = ',';
  }
  return text;
}

const std::string* OptionReader::Find(OptionDoc doc) {
  const auto found = spec_.options.find(doc.name);
  docs_.push_back(std::move(doc));
  return found == spec_.options.end() ? nullptr : &found->second;
}

void OptionReader::Refuse(const std::string& name, const std::string& expected) const {
  const auto found = spec_.options.find(name);
  if (found == spec_.options.end()) FailUsage("{}: {}: expected {}", spec_.name, name, expected);
  FailUsage("{}: {}: expected {}, got \"{}\"", spec_.name, name, expected, found->second);
}

int64_t OptionReader::Integer(const std::string& name, int64_t fallback, int64_t least, int64_t most,
                              const std::string& about, const std::string& why) {
  const std::string range = fmt::format("{} to {}", least, most);
  const std::string* text = Find({name, fmt::format("{}", fallback), range, about});
  if (text == nullptr) return fallback;
  int64_t value = 0;
  if (!Parse(*text, &value) || value < least || value > most)
    Refuse(name, "an integer from " + range + (why.empty() ? why : " (" + why + ")"));
  return value;
}

double OptionReader::Real(const std::string& name, double fallback, double least, const std::string& about) {
  const bool bounded = std::isfinite(least);
  const std::string* text =
      Find({name, fmt::format("{}", fallback), bounded ? fmt::format("at least {}", least) : "any", about});
  if (text == nullptr) return fallback;
  double value = 0;
  if (!Parse(*text, &value) || !std::isfinite(value) || value < least) {
    Refuse(name, bounded ? fmt::format("a number of at least {}", least) : "a finite number");
  }
  return value;
}

bool OptionReader::Boolean(const std::string& name, bool fallback, const std::string& about) {
  const std::string* text = Find({name, fallback ? "true" : "false", "true or false", about});
  if (text == nullptr) return fallback;
  if (*text != "true" && *text != "false") Refuse(name, "true or false");
  return *text == "true";
}

std::string OptionReader::Choice(const std::string& name, const std::vector<std::string>& choices,
                                 const std::string& about) {
  const std::string range = fmt::format("{}", fmt::join(choices, " or "));
  const std::string* text = Find({name, choices.front(), range, about});
  if (text == nullptr) return choices.front();
  for (const std::string& choice : choices) {
    if (*text == choice) return choice;
  }
  Refuse(name, range);
}

void OptionReader::Finish() const {
  std::vector<std::string> known;
  for (const OptionDoc& doc : docs_) known.push_back(doc.name);
  for (const auto& [name, value] : spec_.options) {
    bool found = false;
    for (const std::string& one : known) found = found || one == name;
    if (found) continue;
    if (known.empty()) FailUsage("{}: expected no options, got \"{}\"", spec_.name, name);
    FailUsage("{}: unknown option \"{}\"; did you mean \"{}\"? Options: {}", spec_.name, name,
              Nearest(name, known), fmt::join(known, ", "));
  }
}

}  // namespace strata
