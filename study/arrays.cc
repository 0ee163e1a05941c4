#include "study/arrays.h"

#include <cmath>

#include "base/error.h"
#include "base/options.h"

namespace strata {
namespace {

std::string Place(const std::string& where, const std::vector<size_t>& index) {
  std::string text = where;
  for (const size_t i : index) text += fmt::format("[{}]", i);
  return text;
}

void Collect(const std::string& where, const nlohmann::json& json, std::vector<size_t>* index, Array* array) {
  const size_t depth = index->size();
  if (depth == array->shape.size()) {
    if (!json.is_number() || !std::isfinite(json.get<double>())) {
      FailUsage("{}: expected a number, got {}", Place(where, *index), Shown(json));
    }
    array->values.push_back(json.get<double>());
    return;
  }
  if (!json.is_array()) FailUsage("{}: expected a list, got {}", Place(where, *index), Shown(json));
  if (static_cast<int64_t>(json.size()) != array->shape[depth]) {
    FailUsage("{}: expected {} entries like its neighbours, got {}", Place(where, *index),
              array->shape[depth], json.size());
  }
  for (size_t i = 0; i < json.size(); ++i) {
    index->push_back(i);
    Collect(where, json[i], index, array);
    index->pop_back();
  }
}

nlohmann::ordered_json NestedFrom(const std::string& where, const std::vector<int64_t>& shape, size_t depth,
                                  const double** next, bool gaps) {
  if (depth == shape.size()) {
    const double value = *(*next)++;
    if (gaps && std::isnan(value)) return nullptr;
    if (!std::isfinite(value)) Fail("{}: expected numbers that fit a double, got an overflow", where);
    return value;
  }
  auto list = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < shape[depth]; ++i) list.push_back(NestedFrom(where, shape, depth + 1, next, gaps));
  return list;
}

}  // namespace

Array ReadArray(const std::string& where, const nlohmann::json& json) {
  if (!json.is_array()) FailUsage("{}: expected a list of numbers, got {}", where, Shown(json));
  Array array;
  for (const nlohmann::json* at = &json; at->is_array(); at = &at->front()) {
    array.shape.push_back(static_cast<int64_t>(at->size()));
    if (at->empty()) break;
  }
  std::vector<size_t> index;
  Collect(where, json, &index, &array);
  return array;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void ExpectShape(const std::string& where, const Array& array, const std::vector<int64_t>& shape) {
  bool same = array.shape.size() == shape.size();
  for (size_t i = 0; same && i < shape.size(); ++i) same = shape[i] < 0 || shape[i] == array.shape[i];
  if (same) return;
  std::string expected = ShapeText(shape);
  for (size_t at; (at = expected.find("-1")) != std::string::npos;) expected.replace(at, 2, "any");
  FailUsage("{}: expected shape {}, got {}", where, expected, ShapeText(array.shape));
}

nlohmann::ordered_json Nested(const std::string& where, const std::vector<int64_t>& shape,
                              const double* values, bool gaps) {
  return NestedFrom(where, shape, 0, &values, gaps);
}

}  // namespace strata
