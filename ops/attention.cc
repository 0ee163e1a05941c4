#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "base/buffer.h"
#include "base/parallel.h"
#include "ops/matmul.h"
#include "ops/nn.h"
#include "ops/softmax.h"

namespace strata {
namespace {

constexpr int64_t kTile = 128;  // queries whose scores exist at a time

template <class E>
struct Scratch {
  Buffer<float> scores, dp, delta, dkey, dvalue;
  Buffer<E> p, ds;
};

template <class E>
Scratch<E>& ThreadScratch() {
  thread_local Scratch<E> scratch;
  return scratch;
}

// scores [rows, keys] = Q K^T for one tile of queries.
template <class E>
void Scores(const AttentionDims& d, int64_t rows, int64_t keys, const E* q, const E* k, float* scores) {
  Matmul<E, float>({rows, keys, d.head_dim, d.query.token, d.key.token, keys, Op::kNone, Op::kTranspose}, q,
                   k, scores);
}

template <class E>
void HeadForward(const AttentionDims& d, const E* q, const E* k, const E* v, E* out, float* lse) {
  Scratch<E>& s = ThreadScratch<E>();
  const float scale = 1.0f / std::sqrt(static_cast<float>(d.head_dim));
  for (int64_t begin = 0; begin < d.length; begin += kTile) {
    const int64_t rows = std::min(kTile, d.length - begin), first = d.past + begin, keys = first + rows;
    s.scores.Resize(rows * keys);
    s.p.Resize(rows * keys);
    Scores(d, rows, keys, q + begin * d.query.token, k, s.scores.data());
    CausalSoftmax(rows, keys, first, scale, s.scores.data(), s.p.data(), lse + begin);
    Matmul<E, E>({rows, d.head_dim, keys, keys, d.key.token, d.out.token}, s.p.data(), v,
                 out + begin * d.out.token);
  }
}

template <class E>
void HeadBackward(const AttentionDims& d, const E* q, const E* k, const E* v, const E* out, const float* lse,
                  const E* dout, E* dq) {
  Scratch<E>& s = ThreadScratch<E>();
  const int64_t w = d.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(w));
  for (int64_t begin = 0; begin < d.length; begin += kTile) {
    const int64_t rows = std::min(kTile, d.length - begin), keys = begin + rows;
    s.scores.Resize(rows * keys);
    s.dp.Resize(rows * keys);
    s.p.Resize(rows * keys);
    s.ds.Resize(rows * keys);
    s.delta.Resize(rows);
    const E *q_tile = q + begin * d.query.token, *dout_tile = dout + begin * d.out.token;
    Scores(d, rows, keys, q_tile, k, s.scores.data());
    Matmul<E, float>({rows, keys, w, d.out.token, d.key.token, keys, Op::kNone, Op::kTranspose}, dout_tile, v,
                     s.dp.data());
    for (int64_t r = 0; r < rows; ++r) {
      s.delta[r] = Dot(w, dout_tile + r * d.out.token, out + (begin + r) * d.out.token);
    }
    CausalSoftmaxVjp(rows, keys, begin, scale, s.scores.data(), lse + begin, s.dp.data(), s.delta.data(),
                     s.p.data(), s.ds.data());
    Matmul<E, E>({rows, w, keys, keys, d.key.token, d.query.token}, s.ds.data(), k,
                 dq + begin * d.query.token);
    Matmul<E, float>({keys, w, rows, keys, d.query.token, w, Op::kTranspose}, s.ds.data(), q_tile,
                     s.dkey.data(), Into::kAdd);
    Matmul<E, float>({keys, w, rows, keys, d.out.token, w, Op::kTranspose}, s.p.data(), dout_tile,
                     s.dvalue.data(), Into::kAdd);
  }
}

}  // namespace

template <class E>
void Attention(const AttentionDims& d, const E* query, const E* key, const E* value, E* out, float* lse) {
  const int64_t group = d.heads / d.kv_heads;
  ParallelFor(d.batch * d.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / d.heads, h = i % d.heads;
      const int64_t kv = b * d.key.sequence + h / group * d.key.head;
      HeadForward(d, query + b * d.query.sequence + h * d.query.head, key + kv, value + kv,
                  out + b * d.out.sequence + h * d.out.head, lse + i * d.length);
    }
  });
}

template <class E>
void AttentionVjp(const AttentionDims& d, const E* query, const E* key, const E* value, const E* out,
                  const float* lse, const E* dout, E* dquery, E* dkey, E* dvalue) {
  const int64_t group = d.heads / d.kv_heads;
  ParallelFor(d.batch * d.kv_heads, 1, [&](int64_t begin, int64_t end) {
    Scratch<E>& s = ThreadScratch<E>();
    s.dkey.Resize(d.length * d.head_dim);
    s.dvalue.Resize(d.length * d.head_dim);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / d.kv_heads, kv = i % d.kv_heads;
      const int64_t at = b * d.key.sequence + kv * d.key.head;
      s.dkey.Fill(0);
      s.dvalue.Fill(0);
      for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
        const int64_t q = b * d.query.sequence + h * d.query.head, o = b * d.out.sequence + h * d.out.head;
        HeadBackward(d, query + q, key + at, value + at, out + o, lse + (b * d.heads + h) * d.length,
                     dout + o, dquery + q);
      }
      for (int64_t t = 0; t < d.length; ++t) {
        Convert(d.head_dim, s.dkey.data() + t * d.head_dim, dkey + at + t * d.key.token);
        Convert(d.head_dim, s.dvalue.data() + t * d.head_dim, dvalue + at + t * d.key.token);
      }
    }
  });
}

#define STRATA_INSTANTIATE(E)                                                                            \
  template void Attention(const AttentionDims&, const E*, const E*, const E*, E*, float*);               \
  template void AttentionVjp(const AttentionDims&, const E*, const E*, const E*, const E*, const float*, \
                             const E*, E*, E*, E*);
STRATA_INSTANTIATE(float)
STRATA_INSTANTIATE(BFloat16)

}  // namespace strata
