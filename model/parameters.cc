#include "model/parameters.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace strata {

int ParameterSet::Add(Parameter parameter) {
  int64_t size = 1;
  for (const int64_t extent : parameter.shape) size = CheckedProduct(size, extent, parameter.name.c_str());
  offsets_.push_back(total_);
  total_ += size;
  specs_.push_back(std::move(parameter));
  return count() - 1;
}

void ParameterSet::Allocate() {
  values_.Resize(total_);
  gradients_.Resize(total_);
}

void ParameterSet::Initialise(uint64_t seed) {
  for (int i = 0; i < count(); ++i) {
    const std::vector<double> initial = InitialValues({spec(i)}, "", seed);
    for (size_t n = 0; n < initial.size(); ++n) value(i)[n] = static_cast<float>(initial[n]);
  }
}

}  // namespace strata
