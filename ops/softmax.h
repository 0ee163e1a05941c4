#ifndef STRATA_OPS_SOFTMAX_H_
#define STRATA_OPS_SOFTMAX_H_

#include <cstdint>

#include "ops/bfloat16.h"

namespace strata {

// Softmax cross-entropy. logits [rows, vocab]; targets < 0 are skipped. losses [rows] in nats (0 where
// skipped). With dlogits: assigned scale * (softmax - onehot), 0 where skipped.
template <class E>
void CrossEntropy(int64_t rows, int64_t vocab, const float* logits, const int32_t* targets, float scale,
                  float* losses, E* dlogits);

// Row ops of attention, on the calling thread. Scores s [rows, ld] in f32; row r may see keys [0, first + r].
// p = softmax(scale * s), 0 beyond what the row sees; lse[r] = log sum exp(scale * s).
template <class E>
void CausalSoftmax(int64_t rows, int64_t keys, int64_t first, float scale, const float* s, E* p, float* lse);
// From scores and lse: p as above, ds = scale * p * (dp - delta[r]); both [rows, keys] assigned.
template <class E>
void CausalSoftmaxVjp(int64_t rows, int64_t keys, int64_t first, float scale, const float* s,
                      const float* lse, const float* dp, const float* delta, E* p, E* ds);
}  // namespace strata

#endif  // STRATA_OPS_SOFTMAX_H_
