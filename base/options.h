#ifndef STRATA_BASE_OPTIONS_H_
#define STRATA_BASE_OPTIONS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace strata {

// An options struct lists its fields once: Visit(self, visit) calls visit(name, field, help) for each. Fields
// are int64_t, double, bool, std::string or std::vector<std::string>. From that list come JSON (here) and the
// command line (tools/flags.h).

// Text to a field; an Error (exit 2) `--name: expected an integer, got X`.
void ParseOption(const std::string& name, const std::string& text, int64_t* value);
void ParseOption(const std::string& name, const std::string& text, double* value);
void ParseOption(const std::string& name, const std::string& text, std::string* value);

// JSON to a field; an Error `where: "name": expected an integer, got X`.
void FromJson(const std::string& where, const std::string& name, const nlohmann::json& json, int64_t* value);
void FromJson(const std::string& where, const std::string& name, const nlohmann::json& json, double* value);
void FromJson(const std::string& where, const std::string& name, const nlohmann::json& json, bool* value);
void FromJson(const std::string& where, const std::string& name, const nlohmann::json& json,
              std::string* value);
void FromJson(const std::string& where, const std::string& name, const nlohmann::json& json,
              std::vector<std::string>* value);

// A short form of a value for messages: one line, at most 40 characters.
std::string Shown(const nlohmann::json& value);

// Parses a JSON object; an Error (exit 2) that says what is wrong and where, also for binary files.
nlohmann::json ParseJsonObject(const std::string& where, const std::string& text);

// Error (exit 2) `where: unknown option "blcks"; did you mean "blocks"?`
[[noreturn]] void FailUnknownKey(const std::string& where, const std::string& key,
                                 const std::vector<std::string>& known);

template <class Options>
std::vector<std::string> OptionNames() {
  Options options;
  std::vector<std::string> names;
  Options::Visit(options, [&](const char* name, auto&, const char*) { names.emplace_back(name); });
  return names;
}

// Adds the fields of `options` to a JSON object.
template <class Options>
void WriteOptions(const Options& options, nlohmann::json* json) {
  Options::Visit(options, [&](const char* name, const auto& field, const char*) { (*json)[name] = field; });
}

// Reads the keys of a JSON object into the options that have a field of that name, except those in `keep`.
// Keys in `others` are passed over; any further key is an Error. All values are checked, also of kept fields.
template <class... Options>
void ReadOptions(const std::string& where, const nlohmann::json& json, const std::set<std::string>& keep,
                 const std::set<std::string>& others, Options*... options) {
  std::vector<std::string> known;
  const auto read = [&]<class One>(One* one) {
    One::Visit(*one, [&](const char* name, auto& field, const char*) {
      known.emplace_back(name);
      if (!json.contains(name)) return;
      auto value = field;
      FromJson(where, name, json.at(name), &value);
      if (!keep.contains(name)) field = std::move(value);
    });
  };
  (read(options), ...);
  for (const auto& item : json.items()) {
    if (others.contains(item.key())) continue;
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
      FailUnknownKey(where, item.key(), known);
    }
  }
}

}  // namespace strata

#endif  // STRATA_BASE_OPTIONS_H_
