#include <cstring>

#include "base/parallel.h"
#include "ops/mix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/mix_read.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "ops/mix-inl.h"

// Read and its gradient for float, on tokens [begin, end). Each loop follows the scalar line of ref.h that it
// implements.
HWY_BEFORE_NAMESPACE();
namespace strata {
namespace HWY_NAMESPACE {

template <Coef kind, int kSlots>
HWY_INLINE void ReadRow(const MixDims& m, const Coefs<kind>& read, const float* const* slots, int64_t row,
                        float* x) {
  const float* s[HWY_MAX(kSlots, 1)];
  for (int k = 0; k < kSlots; ++k) s[k] = slots[k] + row;
  const auto load = [&](auto d, int k, int64_t i) {
    return hn::LoadU(d, kSlots > 0 ? s[k] + i : slots[k] + row + i);
  };
  const int n = kSlots > 0 ? kSlots : m.slots;
  ForLanes(m.dim, [&](auto d, int64_t i) {
    auto sum = read.Times(d, 0, i, load(d, 0, i));
    for (int k = 1; k < n; ++k) sum = read.TimesPlus(d, k, i, load(d, k, i), sum);
    hn::StoreU(sum, d, x + row + i);
  });
}

void ReadRows(const MixDims& m, Coef kind, const float* read, const float* const* slots, float* x,
              int64_t begin, int64_t end) {
  WithCoef(kind, [&](auto tag) {
    constexpr Coef kKind = decltype(tag)::value;
    WithSlots(m.slots, [&](auto slots_tag) {
      for (int64_t t = begin; t < end; ++t) {
        ReadRow<kKind, decltype(slots_tag)::value>(m, CoefsOf<kKind>(m, read, t), slots, t * m.dim, x);
      }
    });
  });
}

// ds += read * dx and dread += s * dx for one slot of one token.
template <Coef kind>
HWY_INLINE void ReadVjpRow(const MixDims& m, const Coefs<kind>& read, int k, const float* s, const float* dx,
                           float* ds, float* dread) {
  Sum sum;
  ForLanes(m.dim, [&](auto d, int64_t i) {
    const auto g = hn::LoadU(d, dx + i);
    if constexpr (kind == Coef::kToken) sum.Add(d, hn::LoadU(d, s + i), g);
    if constexpr (kind == Coef::kChannel) {
      float* to = dread + k * m.dim + i;
      hn::StoreU(hn::MulAdd(hn::LoadU(d, s + i), g, hn::LoadU(d, to)), d, to);
    }
    hn::StoreU(read.TimesPlus(d, k, i, g, hn::LoadU(d, ds + i)), d, ds + i);
  });
  if constexpr (kind == Coef::kToken) dread[k] += sum.Total();
}

void ReadVjpRows(const MixDims& m, Coef kind, const float* read, const float* const* slots, const float* dx,
                 float* const* dslots, float* dread, int64_t begin, int64_t end) {
  WithCoef(kind, [&](auto tag) {
    constexpr Coef kKind = decltype(tag)::value;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = t * m.dim;
      float* gradient = kKind == Coef::kOne ? nullptr : dread + t * CoefSize(kKind, m.slots, m.dim);
      for (int k = 0; k < m.slots; ++k) {
        ReadVjpRow<kKind>(m, CoefsOf<kKind>(m, read, t), k, slots[k] + row, dx + row, dslots[k] + row,
                          gradient);
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace strata
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {

HWY_EXPORT(ReadRows);
HWY_EXPORT(ReadVjpRows);

constexpr int64_t kReadRows = 32;  // tokens per chunk

template <>
void Read(const MixDims& m, Coef kind, const float* read, const float* const* slots, float* x) {
  if (kind == Coef::kOne && m.slots == 1) {
    if (x == slots[0]) return;
    ParallelFor(m.tokens, kReadRows, [&](int64_t b, int64_t e) {
      std::memcpy(x + b * m.dim, slots[0] + b * m.dim, static_cast<size_t>((e - b) * m.dim) * sizeof(float));
    });
    return;
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(ReadRows);
  ParallelFor(m.tokens, kReadRows, [&](int64_t b, int64_t e) { kernel(m, kind, read, slots, x, b, e); });
}

template <>
void ReadVjp(const MixDims& m, Coef kind, const float* read, const float* const* slots, const float* dx,
             float* const* dslots, float* dread) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(ReadVjpRows);
  ParallelFor(m.tokens, kReadRows,
              [&](int64_t b, int64_t e) { kernel(m, kind, read, slots, dx, dslots, dread, b, e); });
}

}  // namespace strata
#endif  // HWY_ONCE
