#ifndef STRATA_MODEL_OPTIMIZER_H_
#define STRATA_MODEL_OPTIMIZER_H_

#include <cstdint>
#include <string>

#include "base/buffer.h"
#include "model/parameters.h"

namespace strata {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

// AdamW with decoupled decay (Loshchilov and Hutter, arXiv 1711.05101). Decay only where Parameter.decays.
class AdamW {
 public:
  AdamW(const ParameterSet& parameters, const AdamWOptions& options);
  // One pass: values -= lr * (m_hat / (sqrt(v_hat) + eps) + decay * value), gradients are multiplied by
  // gradient_scale (clipping) first and set to zero afterwards.
  void Step(ParameterSet* parameters, double lr, double gradient_scale);
  int64_t step() const { return step_; }
  void set_step(int64_t step) { step_ = step; }
  Buffer<float>& first() { return first_; }
  Buffer<float>& second() { return second_; }

 private:
  AdamWOptions options_;
  int64_t step_ = 0;
  Buffer<float> first_, second_;
};

// Euclidean norm of all gradients, summed in double over fixed chunks.
double GradientNorm(const ParameterSet& parameters);

// Linear warm-up to peak, then: cosine to final_fraction * peak; wsd: constant, then linear decay to
// final_fraction * peak over the last fifth; constant.
double LearningRate(const std::string& schedule, double peak, int64_t step, int64_t steps, int64_t warmup,
                    double final_fraction);

}  // namespace strata

#endif  // STRATA_MODEL_OPTIMIZER_H_
