#ifndef STRATA_OPS_ADAMW_H_
#define STRATA_OPS_ADAMW_H_

#include <cstdint>

namespace strata {

// The numbers of one AdamW step (Loshchilov and Hutter, arXiv 1711.05101), decoupled decay:
//   m = beta1 m + (1 - beta1) g          g = gradient_scale * gradient
//   v = beta2 v + (1 - beta2) g^2
//   value = value - rate * m / (sqrt(v) * root + eps) - shrink * value
// rate = lr / (1 - beta1^t), root = 1 / sqrt(1 - beta2^t), shrink = lr * decay.
struct AdamWNumbers {
  float beta1 = 0, beta2 = 0, eps = 0;
  float gradient_scale = 1;
  float rate = 0, root = 1, shrink = 0;
};

// Updates value, first and second [size] in one pass and sets gradient to zero. Elements are independent.
void AdamWUpdate(int64_t size, const AdamWNumbers& numbers, float* value, float* gradient, float* first,
                 float* second);

}  // namespace strata

#endif  // STRATA_OPS_ADAMW_H_
