#ifndef STRATA_MODEL_WEIGHTS_H_
#define STRATA_MODEL_WEIGHTS_H_

#include <type_traits>

#include "model/parameters.h"
#include "ops/nn.h"

namespace strata {

// The parameters as the matrix products want them: the f32 masters themselves, or bf16 copies made once a
// step.
template <class E>
class Weights {
 public:
  explicit Weights(ParameterSet* parameters) : parameters_(parameters) {}
  void MarkStale() { stale_ = true; }
  void Refresh() {
    if constexpr (!std::is_same_v<E, float>) {
      if (!stale_) return;
      copies_.Resize(parameters_->total());
      Convert(parameters_->total(), parameters_->values(), copies_.data());
      stale_ = false;
    }
  }
  const E* Get(int i) const {
    if constexpr (std::is_same_v<E, float>) {
      return parameters_->value(i);
    } else {
      return copies_.data() + parameters_->offset(i);
    }
  }
  const float* Master(int i) const { return parameters_->value(i); }
  float* Gradient(int i) const { return parameters_->gradient(i); }
  static int64_t Bytes(int64_t total) { return std::is_same_v<E, float> ? 0 : total * int64_t{sizeof(E)}; }

 private:
  ParameterSet* parameters_;
  Buffer<E> copies_;
  bool stale_ = true;
};

}  // namespace strata

#endif  // STRATA_MODEL_WEIGHTS_H_
