#include "model/parameters.h"

#include <algorithm>
#include <utility>

#include "base/random.h"

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

static void Fill(const Parameter& spec, uint64_t seed, float* values) {
  const int64_t size = spec.size();
  switch (spec.init.kind) {
    case Init::Kind::kConstant:
      std::fill_n(values, size, static_cast<float>(spec.init.value));
      break;
    case Init::Kind::kNormal: {
      Random random(seed, HashName(spec.name));
      for (int64_t i = 0; i < size; ++i) values[i] = static_cast<float>(spec.init.value * random.Normal());
      break;
    }
    case Init::Kind::kValues:
      if (static_cast<int64_t>(spec.init.values.size()) != size) {
        Fail("{}: expected {} initial values, got {}", spec.name, size, spec.init.values.size());
      }
      for (int64_t i = 0; i < size; ++i)
        values[i] = static_cast<float>(spec.init.values[static_cast<size_t>(i)]);
      break;
  }
}

void ParameterSet::Initialise(uint64_t seed) {
  for (int i = 0; i < count(); ++i) Fill(spec(i), seed, value(i));
}

}  // namespace strata
