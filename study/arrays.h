#ifndef STRATA_STUDY_ARRAYS_H_
#define STRATA_STUDY_ARRAYS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace strata {

// Nested JSON arrays of numbers, row-major. An empty list ends the shape: [] has shape [0], [[]] has [1, 0].
struct Array {
  std::vector<int64_t> shape;
  std::vector<double> values;
};

// Error (exit 2) `where: expected ..., got ...`: ragged lists, values that are no numbers, no list at all.
Array ReadArray(const std::string& where, const nlohmann::json& json);
// "[2, 3]"
std::string ShapeText(const std::vector<int64_t>& shape);
// Error (exit 2) unless the array has this shape; -1 stands for any extent.
void ExpectShape(const std::string& where, const Array& array, const std::vector<int64_t>& shape);
// Numbers as nested lists. NaN becomes null where `gaps`; any other number that is not finite is an Error
// (exit 1) that names `where`.
nlohmann::ordered_json Nested(const std::string& where, const std::vector<int64_t>& shape,
                              const double* values, bool gaps = false);

}  // namespace strata

#endif  // STRATA_STUDY_ARRAYS_H_
