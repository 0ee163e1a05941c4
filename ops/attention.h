#ifndef STRATA_OPS_ATTENTION_H_
#define STRATA_OPS_ATTENTION_H_

#include <cstdint>

#include "ops/bfloat16.h"

namespace strata {

// Causal grouped-query attention. Query head h uses key and value head h / (heads / kv_heads). Query i of a
// sequence sees keys [0, past + i]. Strides are in elements: one token to the next, one head to the next, one
// sequence to the next. Scores exist only for a tile of queries at a time: memory does not grow with
// length^2.
struct HeadStrides {
  int64_t token = 0, head = 0, sequence = 0;
};
struct AttentionDims {
  int64_t batch = 0, length = 0, past = 0;  // length: queries per sequence
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  HeadStrides query, key, out;  // values lie like keys; gradients lie like what they belong to
};

// out assigned; lse [batch, heads, length] assigned: log of the softmax's denominator, for the backward pass.
template <class E>
void Attention(const AttentionDims& dims, const E* query, const E* key, const E* value, E* out, float* lse);

// past must be 0. dquery, dkey and dvalue assigned.
template <class E>
void AttentionVjp(const AttentionDims& dims, const E* query, const E* key, const E* value, const E* out,
                  const float* lse, const E* dout, E* dquery, E* dkey, E* dvalue);

}  // namespace strata

#endif  // STRATA_OPS_ATTENTION_H_
