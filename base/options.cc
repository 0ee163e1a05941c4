#include "base/options.h"

#include <charconv>
#include <cmath>

namespace strata {

using nlohmann::json;

namespace {

// One line of at most 40 characters.
std::string Shortened(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text.size() <= 40 ? text : text.substr(0, 37) + "...";
}

[[noreturn]] void FailType(const std::string& where, const std::string& name, const char* type,
                           const json& got) {
  FailUsage("{}: \"{}\": expected {}, got {}", where, name, type, Shown(got));
}

template <class T>
bool ParseWhole(const std::string& text, T* value) {
  const char* end = text.data() + text.size();
  const char* begin = text.data() + (text.size() > 1 && text[0] == '+' ? 1 : 0);
  const auto result = std::from_chars(begin, end, *value);
  return result.ec == std::errc() && result.ptr == end;
}

}  // namespace

std::string Shown(const json& value) {
  return Shortened(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

void ParseOption(const std::string& name, const std::string& text, int64_t* value) {
  if (!ParseWhole(text, value)) FailUsage("--{}: expected an integer, got {}", name, Shortened(text));
}

void ParseOption(const std::string& name, const std::string& text, double* value) {
  if (!ParseWhole(text, value) || !std::isfinite(*value)) {
    FailUsage("--{}: expected a finite number, got {}", name, Shortened(text));
  }
}

void ParseOption(const std::string& name, const std::string& text, std::string* value) {
  if (text.empty()) FailUsage("--{}: expected a value, got an empty text", name);
  *value = text;
}

void FromJson(const std::string& where, const std::string& name, const json& from, int64_t* value) {
  const bool fits = from.is_number_unsigned() ? from.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                                              : from.is_number_integer();
  if (!fits) FailType(where, name, "an integer", from);
  *value = from.get<int64_t>();
}

void FromJson(const std::string& where, const std::string& name, const json& from, double* value) {
  if (!from.is_number() || !std::isfinite(from.get<double>())) FailType(where, name, "a number", from);
  *value = from.get<double>();
}

void FromJson(const std::string& where, const std::string& name, const json& from, bool* value) {
  if (!from.is_boolean()) FailType(where, name, "true or false", from);
  *value = from.get<bool>();
}

void FromJson(const std::string& where, const std::string& name, const json& from, std::string* value) {
  if (!from.is_string()) FailType(where, name, "a text", from);
  *value = from.get<std::string>();
}

void FromJson(const std::string& where, const std::string& name, const json& from,
              std::vector<std::string>* value) {
  if (from.is_string()) {
    value->assign(1, from.get<std::string>());
    return;
  }
  if (!from.is_array()) FailType(where, name, "a list of texts", from);
  value->clear();
  for (const json& item : from) {
    if (!item.is_string()) FailType(where, name, "a list of texts", from);
    value->push_back(item.get<std::string>());
  }
}

json ParseJsonObject(const std::string& where, const std::string& text) {
  json parsed;
  std::vector<std::set<std::string>> seen;  // keys of the objects that are open
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    constexpr int kDeepest = 64;
    if (depth > kDeepest)
      FailUsage("{}: expected a JSON object of at most {} levels, got deeper nesting", where, kDeepest);
    if (event == json::parse_event_t::object_start) seen.emplace_back();
    if (event == json::parse_event_t::object_end) seen.pop_back();
    if (event == json::parse_event_t::key && !seen.back().insert(value.get<std::string>()).second) {
      FailUsage("{}: expected each key once, got {} twice", where, Shown(value));
    }
    return true;
  };
  try {
    parsed = json::parse(text, check);
  } catch (const json::parse_error& error) {
    FailUsage("{}: expected a JSON object, got {} at byte {}", where,
              text.empty() ? "an empty file" : "something else", error.byte);
  } catch (const json::exception&) {
    FailUsage("{}: expected numbers that fit a double, got a larger one", where);
  }
  if (!parsed.is_object()) FailUsage("{}: expected a JSON object, got {}", where, Shown(parsed));
  return parsed;
}

void FailUnknownKey(const std::string& where, const std::string& key, const std::vector<std::string>& known) {
  FailUsage("{}: unknown option \"{}\"; did you mean \"{}\"?", where, Shortened(key), Nearest(key, known));
}

}  // namespace strata
