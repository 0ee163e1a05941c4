#include "ops/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "ops/kernel.h"

#ifndef STRATA_OPS_SOFTMAX_GRADIENT_
#define STRATA_OPS_SOFTMAX_GRADIENT_
namespace strata {
struct SoftmaxGradient {
  float scale, lse, delta;
};
}  // namespace strata
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/softmax.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata {
namespace HWY_NAMESPACE {

HWY_INLINE float MaxOf(int64_t size, const float* x) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float top = -std::numeric_limits<float>::infinity();
  auto best = hn::Set(d, top);
  int64_t i = 0;
  for (; i + lanes <= size; i += lanes) best = hn::Max(best, hn::LoadU(d, x + i));
  top = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < size; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

template <class E>
float CrossEntropyRow(int64_t vocab, const float* logits, int32_t target, float scale, E* dlogits) {
  const float top = MaxOf(vocab, logits);
  const float sum = SumLanes(vocab, [&](auto d, int64_t i) {
    return hn::Exp(d, hn::Sub(hn::LoadU(d, logits + i), hn::Set(d, top)));
  });
  const float lse = top + std::log(sum);
  if (dlogits != nullptr) {
    ForLanes(vocab, [&](auto d, int64_t i) {
      const auto p = hn::Exp(d, hn::Sub(hn::LoadU(d, logits + i), hn::Set(d, lse)));
      StoreF(d, hn::Mul(p, hn::Set(d, scale)), dlogits + i);
    });
    dlogits[target] = FromFloat<E>((std::exp(logits[target] - lse) - 1.0f) * scale);
  }
  return lse - logits[target];
}
float CrossEntropyF32(int64_t vocab, const float* logits, int32_t target, float scale, float* dlogits) {
  return CrossEntropyRow(vocab, logits, target, scale, dlogits);
}
float CrossEntropyBf16(int64_t vocab, const float* logits, int32_t target, float scale, BFloat16* dlogits) {
  return CrossEntropyRow(vocab, logits, target, scale, dlogits);
}

template <class E>
void SoftmaxRow(int64_t seen, int64_t keys, float scale, const float* s, E* p, float* lse) {
  const float top = MaxOf(seen, s) * scale;
  const float sum = SumLanes(seen, [&](auto d, int64_t i) {
    return hn::Exp(d, hn::MulSub(hn::LoadU(d, s + i), hn::Set(d, scale), hn::Set(d, top)));
  });
  *lse = top + std::log(sum);
  const float inverse = 1.0f / sum;
  ForLanes(seen, [&](auto d, int64_t i) {
    const auto e = hn::Exp(d, hn::MulSub(hn::LoadU(d, s + i), hn::Set(d, scale), hn::Set(d, top)));
    StoreF(d, hn::Mul(e, hn::Set(d, inverse)), p + i);
  });
  for (int64_t i = seen; i < keys; ++i) p[i] = E{};
}
void SoftmaxF32(int64_t seen, int64_t keys, float scale, const float* s, float* p, float* lse) {
  SoftmaxRow(seen, keys, scale, s, p, lse);
}
void SoftmaxBf16(int64_t seen, int64_t keys, float scale, const float* s, BFloat16* p, float* lse) {
  SoftmaxRow(seen, keys, scale, s, p, lse);
}

template <class E>
void SoftmaxVjpRow(int64_t seen, int64_t keys, const SoftmaxGradient& g, const float* s, const float* dp,
                   E* p, E* ds) {
  ForLanes(seen, [&](auto d, int64_t i) {
    const auto q = hn::Exp(d, hn::MulSub(hn::LoadU(d, s + i), hn::Set(d, g.scale), hn::Set(d, g.lse)));
    StoreF(d, q, p + i);
    const auto change = hn::Sub(hn::LoadU(d, dp + i), hn::Set(d, g.delta));
    StoreF(d, hn::Mul(hn::Mul(q, hn::Set(d, g.scale)), change), ds + i);
  });
  for (int64_t i = seen; i < keys; ++i) p[i] = ds[i] = E{};
}
void SoftmaxVjpF32(int64_t seen, int64_t keys, const SoftmaxGradient& g, const float* s, const float* dp,
                   float* p, float* ds) {
  SoftmaxVjpRow(seen, keys, g, s, dp, p, ds);
}
void SoftmaxVjpBf16(int64_t seen, int64_t keys, const SoftmaxGradient& g, const float* s, const float* dp,
                    BFloat16* p, BFloat16* ds) {
  SoftmaxVjpRow(seen, keys, g, s, dp, p, ds);
}

}  // namespace HWY_NAMESPACE
}  // namespace strata
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {

HWY_EXPORT(CrossEntropyF32);
HWY_EXPORT(CrossEntropyBf16);
HWY_EXPORT(SoftmaxF32);
HWY_EXPORT(SoftmaxBf16);
HWY_EXPORT(SoftmaxVjpF32);
HWY_EXPORT(SoftmaxVjpBf16);

template <class E>
void CrossEntropy(int64_t rows, int64_t vocab, const float* logits, const int32_t* targets, float scale,
                  float* losses, E* dlogits) {
  const auto kernel = STRATA_KERNEL(E, CrossEntropy);
  ParallelFor(rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      E* gradient = dlogits == nullptr ? nullptr : dlogits + r * vocab;
      losses[r] = 0;
      if (targets[r] >= 0) {
        losses[r] = kernel(vocab, logits + r * vocab, targets[r], scale, gradient);
      } else if (gradient != nullptr) {
        std::fill_n(gradient, vocab, E{});
      }
    }
  });
}

template <class E>
void CausalSoftmax(int64_t rows, int64_t keys, int64_t first, float scale, const float* s, E* p, float* lse) {
  const auto kernel = STRATA_KERNEL(E, Softmax);
  for (int64_t r = 0; r < rows; ++r) {
    kernel(std::min(keys, first + r + 1), keys, scale, s + r * keys, p + r * keys, lse + r);
  }
}

template <class E>
void CausalSoftmaxVjp(int64_t rows, int64_t keys, int64_t first, float scale, const float* s,
                      const float* lse, const float* dp, const float* delta, E* p, E* ds) {
  const auto kernel = STRATA_KERNEL(E, SoftmaxVjp);
  for (int64_t r = 0; r < rows; ++r) {
    kernel(std::min(keys, first + r + 1), keys, {scale, lse[r], delta[r]}, s + r * keys, dp + r * keys,
           p + r * keys, ds + r * keys);
  }
}

#define STRATA_INSTANTIATE(E)                                                                                \
  template void CrossEntropy(int64_t, int64_t, const float*, const int32_t*, float, float*, E*);             \
  template void CausalSoftmax(int64_t, int64_t, int64_t, float, const float*, E*, float*);                   \
  template void CausalSoftmaxVjp(int64_t, int64_t, int64_t, float, const float*, const float*, const float*, \
                                 const float*, E*, E*);
STRATA_INSTANTIATE(float)
STRATA_INSTANTIATE(BFloat16)

}  // namespace strata
#endif  // HWY_ONCE
