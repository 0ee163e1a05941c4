#ifndef STRATA_MODEL_INPUT_NORM_H_
#define STRATA_MODEL_INPUT_NORM_H_

#include <algorithm>
#include <string>

#include "model/config.h"
#include "model/weights.h"
#include "ops/nn.h"

namespace strata {

// The RMS norm with gain on what a sublayer or the head reads. Where the residual connection has normalised
// it already (Rule::normed) it has no parameter and passes x on.
template <class E>
class InputNorm {
 public:
  InputNorm(const ModelConfig& config, const std::string& name, bool normed, ParameterSet* parameters)
      : dim_(config.dim), eps_(config.norm_eps) {
    if (!normed) gain_ = parameters->Add({name, {dim_}, {Init::Kind::kConstant, 1.0, {}}, false});
  }
  // normed [rows, dim] and rstd [rows] assigned.
  void Forward(const Weights<E>& weights, int64_t rows, const float* x, Buffer<E>* normed,
               Buffer<float>* rstd) const {
    normed->Resize(rows * dim_);
    rstd->Resize(rows);
    if (gain_ < 0) {
      Convert(rows * dim_, x, normed->data());
    } else {
      RmsNorm(rows, dim_, x, weights.Master(gain_), eps_, normed->data(), rstd->data());
    }
  }
  // dx assigned, the gain's gradient accumulated.
  void Vjp(const Weights<E>& weights, int64_t rows, const float* x, const Buffer<float>& rstd,
           const float* dnormed, float* dx) const {
    if (gain_ < 0) {
      std::copy(dnormed, dnormed + rows * dim_, dx);
    } else {
      RmsNormVjp(rows, dim_, x, weights.Master(gain_), rstd.data(), dnormed, dx, weights.Gradient(gain_));
    }
  }

 private:
  int64_t dim_;
  double eps_;
  int gain_ = -1;  // none
};

}  // namespace strata

#endif  // STRATA_MODEL_INPUT_NORM_H_
