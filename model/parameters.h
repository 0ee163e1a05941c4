#ifndef STRATA_MODEL_PARAMETERS_H_
#define STRATA_MODEL_PARAMETERS_H_

#include <string>
#include <vector>

#include "base/buffer.h"
#include "residual/mechanism.h"

namespace strata {

// All trainable numbers of a model in one flat f32 array, their gradients in a second one of the same layout.
class ParameterSet {
 public:
  // Appends a tensor and returns its index.
  int Add(Parameter parameter);
  void Allocate();  // after the last Add
  // Every tensor draws from a stream of its own, seeded by (seed, name): the body starts equal in all arms.
  void Initialise(uint64_t seed);

  int count() const { return static_cast<int>(specs_.size()); }
  const Parameter& spec(int i) const { return specs_[static_cast<size_t>(i)]; }
  int64_t offset(int i) const { return offsets_[static_cast<size_t>(i)]; }
  int64_t total() const { return total_; }
  float* value(int i) { return values_.data() + offset(i); }
  float* gradient(int i) { return gradients_.data() + offset(i); }
  float* values() { return values_.data(); }
  float* gradients() { return gradients_.data(); }
  const float* gradients() const { return gradients_.data(); }

 private:
  std::vector<Parameter> specs_;
  std::vector<int64_t> offsets_;
  int64_t total_ = 0;
  Buffer<float> values_, gradients_;
};

}  // namespace strata

#endif  // STRATA_MODEL_PARAMETERS_H_
