// What the law's SIMD kernels share: coefficients as vectors, and sums whose order depends on the row's
// length alone. Included only by files that Highway compiles once per target.
#if defined(STRATA_OPS_MIX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_OPS_MIX_INL_H_
#undef STRATA_OPS_MIX_INL_H_
#else
#define STRATA_OPS_MIX_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "ops/mix.h"
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata {
namespace HWY_NAMESPACE {

using Lanes = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;

template <Coef value>
using CoefTag = std::integral_constant<Coef, value>;

// Calls f(CoefTag) for kOne, kToken or kChannel, so that the loops inside f know the kind.
template <class F>
HWY_INLINE void WithCoef(Coef kind, F&& f) {
  if (kind == Coef::kOne) f(CoefTag<Coef::kOne>());
  if (kind == Coef::kToken) f(CoefTag<Coef::kToken>());
  if (kind == Coef::kChannel) f(CoefTag<Coef::kChannel>());
}

// Calls f(integral_constant n), with 0 for a count that has no code of its own.
template <class F>
HWY_INLINE void WithSlots(int n, F&& f) {
  switch (n) {
    case 1:
      return f(std::integral_constant<int, 1>());
    case 2:
      return f(std::integral_constant<int, 2>());
    case 4:
      return f(std::integral_constant<int, 4>());
    case 8:
      return f(std::integral_constant<int, 8>());
    default:
      return f(std::integral_constant<int, 0>());
  }
}

// One token's coefficients of one kind: `c` points to CoefSize(kind, slots, dim) numbers.
template <Coef kind>
struct Coefs {
  const float* c;
  int64_t dim;

  template <class D>
  HWY_INLINE hn::Vec<D> At(D d, int k, int64_t i) const {
    if constexpr (kind == Coef::kOne) return hn::Set(d, 1.0f);
    if constexpr (kind == Coef::kToken) return hn::Set(d, c[k]);
    if constexpr (kind == Coef::kChannel) return hn::LoadU(d, c + k * dim + i);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Times(D d, int k, int64_t i, hn::Vec<D> v) const {
    if constexpr (kind == Coef::kOne) return v;
    return hn::Mul(At(d, k, i), v);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> TimesPlus(D d, int k, int64_t i, hn::Vec<D> v, hn::Vec<D> sum) const {
    if constexpr (kind == Coef::kOne) return hn::Add(v, sum);
    return hn::MulAdd(At(d, k, i), v, sum);
  }
};

template <Coef kind>
HWY_INLINE Coefs<kind> CoefsOf(const MixDims& m, const float* c, int64_t t) {
  return {kind == Coef::kOne ? nullptr : c + t * CoefSize(kind, m.slots, m.dim), m.dim};
}

// A sum of products over a row: whole vectors lane by lane, what is left over one by one.
struct Sum {
  HWY_INLINE Sum() : lanes(hn::Zero(Lanes())) {}

  Vector lanes;
  float rest = 0;

  template <class D>
  HWY_INLINE void Add(D d, hn::Vec<D> a, hn::Vec<D> b) {
    if constexpr (std::is_same_v<D, Lanes>) {
      lanes = hn::MulAdd(a, b, lanes);
    } else {
      rest = hn::GetLane(hn::MulAdd(a, b, hn::Set(d, rest)));
    }
  }
  HWY_INLINE float Total() const { return hn::GetLane(hn::SumOfLanes(Lanes(), lanes)) + rest; }
};

// Totals of four sums at once.
HWY_INLINE void Totals(const Sum& s0, const Sum& s1, const Sum& s2, const Sum& s3, float* totals) {
#if HWY_TARGET == HWY_SCALAR
  const Sum* sums[4] = {&s0, &s1, &s2, &s3};
  for (int r = 0; r < 4; ++r) totals[r] = sums[r]->Total();
#else
  // Two steps of a transposition leave in every block of four lanes one part of each sum, in order.
  const Lanes d;
  const hn::Repartition<double, Lanes> pairs;
  const auto fold = [d](Vector a, Vector b) {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  const auto ab = hn::BitCast(pairs, fold(s0.lanes, s1.lanes));
  const auto ce = hn::BitCast(pairs, fold(s2.lanes, s3.lanes));
  const auto parts = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, ab, ce)),
                             hn::BitCast(d, hn::InterleaveUpper(pairs, ab, ce)));
  HWY_ALIGN float blocks[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(parts, d, blocks);
  const hn::CappedTag<float, 4> four;
  auto sum = hn::Load(four, blocks);
  for (size_t b = 4; b < hn::Lanes(d); b += 4) sum = hn::Add(sum, hn::Load(four, blocks + b));
  HWY_ALIGN const float rest[4] = {s0.rest, s1.rest, s2.rest, s3.rest};
  hn::StoreU(hn::Add(sum, hn::Load(four, rest)), four, totals);
#endif
}

// products[j * kA + i] = <a[i], b[j]> over `size` elements. Each product is a sum of its own, so it has the
// same bits in blocks of every kB; kA is 1 or 4.
template <int kA, int kB>
HWY_INLINE void Dots(int64_t size, const float* const* a, const float* const* b, float* products) {
  Sum sums[kB][kA];
  const float *pa[kA], *pb[kB];
  for (int i = 0; i < kA; ++i) pa[i] = a[i];
  for (int j = 0; j < kB; ++j) pb[j] = b[j];
  ForLanes(size, [&](auto d, int64_t at) {
    hn::Vec<decltype(d)> va[kA];
    for (int i = 0; i < kA; ++i) va[i] = hn::LoadU(d, pa[i] + at);
    for (int j = 0; j < kB; ++j) {
      const auto vb = hn::LoadU(d, pb[j] + at);
      for (int i = 0; i < kA; ++i) sums[j][i].Add(d, va[i], vb);
    }
  });
  for (int j = 0; j < kB; ++j) {
    if constexpr (kA == 4) Totals(sums[j][0], sums[j][1], sums[j][2], sums[j][3], products + j * 4);
    if constexpr (kA == 1) products[j] = sums[j][0].Total();
  }
}

// Rows of b in a block, so that 4 * kBlock sums and what they multiply fit the registers.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kBlock = 2;
#else
constexpr int kBlock = 4;
#endif

template <int kA, class A, class B, class F>
HWY_INLINE void DotsWith(int64_t size, int i, A&& a, int count_b, B&& b, F&& use) {
  const float *pa[kA], *pb[kBlock];
  float products[kA * kBlock];
  for (int r = 0; r < kA; ++r) pa[r] = a(i + r);
  int j = 0;
  for (; j + kBlock <= count_b; j += kBlock) {
    for (int q = 0; q < kBlock; ++q) pb[q] = b(j + q);
    Dots<kA, kBlock>(size, pa, pb, products);
    for (int q = 0; q < kBlock; ++q) {
      for (int r = 0; r < kA; ++r) use(i + r, j + q, products[q * kA + r]);
    }
  }
  for (; j < count_b; ++j) {
    pb[0] = b(j);
    Dots<kA, 1>(size, pa, pb, products);
    for (int r = 0; r < kA; ++r) use(i + r, j, products[r]);
  }
}

// Calls use(i, j, <a(i), b(j)>) for all i and j; a and b return rows of `size` elements. The bits of a
// product depend on size, i and count_a, not on j or count_b.
template <class A, class B, class F>
HWY_INLINE void AllDots(int64_t size, int count_a, A&& a, int count_b, B&& b, F&& use) {
  int i = 0;
  for (; i + 4 <= count_a; i += 4) DotsWith<4>(size, i, a, count_b, b, use);
  for (; i < count_a; ++i) DotsWith<1>(size, i, a, count_b, b, use);
}

}  // namespace HWY_NAMESPACE
}  // namespace strata
HWY_AFTER_NAMESPACE();

#endif
