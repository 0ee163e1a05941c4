// Helpers for files that Highway compiles once per target; included inside such files only.
#if defined(STRATA_OPS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_OPS_SIMD_INL_H_
#undef STRATA_OPS_SIMD_INL_H_
#else
#define STRATA_OPS_SIMD_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "ops/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace strata {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> LoadF(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadF(D d, const BFloat16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}
template <class D>
HWY_INLINE void StoreF(D d, hn::Vec<D> v, float* p) {
  hn::StoreU(v, d, p);
}
template <class D>
HWY_INLINE void StoreF(D, hn::Vec<D> v, BFloat16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d32, 0x7fffu)), odd));
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(hn::RebindToSigned<D>(), rounded)), d16,
             reinterpret_cast<uint16_t*>(p));
}

// Calls f(d, i) for i over [0, size): whole vectors first, then single lanes.
template <class F>
HWY_INLINE void ForLanes(int64_t size, F&& f) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= size; i += lanes) f(d, i);
  for (; i < size; ++i) f(one, i);
}

// sum over i in [0, size) of f(d, i), a vector of terms. The order depends on `size` and the target alone.
template <class F>
HWY_INLINE float SumLanes(int64_t size, F&& f) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    sum0 = hn::Add(sum0, f(d, i));
    sum1 = hn::Add(sum1, f(d, i + lanes));
  }
  for (; i + lanes <= size; i += lanes) sum0 = hn::Add(sum0, f(d, i));
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < size; ++i) sum += hn::GetLane(f(one, i));
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace strata
HWY_AFTER_NAMESPACE();

#endif
