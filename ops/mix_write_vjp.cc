#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "ops/mix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/mix_write_vjp.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "ops/mix-inl.h"

// The gradient of Write for float, on tokens [begin, end). g is the incoming gradient of a slot; it lies
// where the outgoing one is stored.
HWY_BEFORE_NAMESPACE();
namespace strata {
namespace HWY_NAMESPACE {

struct WriteVjpArgs {
  const MixDims& m;
  const float *keep, *write;
  const float* const* slots;
  const float* u;
  float* const* dslots;
  float *du, *dkeep, *dwrite;
};

// The gradient of coefficient k of one kind: a * b summed over the row (kToken) or added per channel
// (kChannel).
template <Coef kind, class D>
HWY_INLINE void AddProduct(D d, hn::Vec<D> a, hn::Vec<D> b, Sum* sum, float* channels) {
  if constexpr (kind == Coef::kToken) sum->Add(d, a, b);
  if constexpr (kind == Coef::kChannel) hn::StoreU(hn::MulAdd(a, b, hn::LoadU(d, channels)), d, channels);
}

// Slot j of a token where keep leaves the slots apart; du accumulated.
template <Coef kKeep, Coef kWrite>
HWY_INLINE void WriteVjpSlot(const WriteVjpArgs& a, int64_t t, int j) {
  const int64_t dim = a.m.dim, row = t * dim, at = t * a.m.slots + j;
  const auto keep = CoefsOf<kKeep>(a.m, a.keep, t);
  const auto write = CoefsOf<kWrite>(a.m, a.write, t);
  float* keep_channels = kKeep == Coef::kChannel ? a.dkeep + at * dim : nullptr;
  float* write_channels = kWrite == Coef::kChannel ? a.dwrite + at * dim : nullptr;
  const float *s = a.slots[j] + row, *u = a.u + row;
  float *ds = a.dslots[j] + row, *du = a.du + row;
  Sum keep_sum, write_sum;
  ForLanes(dim, [&](auto d, int64_t i) {
    const auto g = hn::LoadU(d, ds + i);
    if constexpr (kWrite != Coef::kOne) {
      AddProduct<kWrite>(d, hn::LoadU(d, u + i), g, &write_sum, write_channels + i);
    }
    if constexpr (kKeep != Coef::kOne) {
      AddProduct<kKeep>(d, hn::LoadU(d, s + i), g, &keep_sum, keep_channels + i);
      hn::StoreU(keep.Times(d, j, i, g), d, ds + i);
    }
    hn::StoreU(write.TimesPlus(d, j, i, g, hn::LoadU(d, du + i)), d, du + i);
  });
  if constexpr (kWrite == Coef::kToken) a.dwrite[at] += write_sum.Total();
  if constexpr (kKeep == Coef::kToken) a.dkeep[at] += keep_sum.Total();
}

// A token with a matrix whose n * (n + 1) coefficient gradients are summed in registers; kToken write.
template <int n>
HWY_INLINE void MixVjpRowOf(const WriteVjpArgs& a, int64_t t) {
  const int64_t row = t * a.m.dim;
  const float *keep = a.keep + t * n * n, *write = a.write + t * n, *u = a.u + row;
  const float* s[n];
  float* ds[n];
  for (int k = 0; k < n; ++k) {
    s[k] = a.slots[k] + row;
    ds[k] = a.dslots[k] + row;
  }
  Sum keep_sums[n][n], write_sums[n];
  ForLanes(a.m.dim, [&](auto d, int64_t i) {
    hn::Vec<decltype(d)> g[n];
    for (int j = 0; j < n; ++j) g[j] = hn::LoadU(d, ds[j] + i);
    auto update = hn::Zero(d);
    const auto loaded_u = hn::LoadU(d, u + i);
    for (int j = 0; j < n; ++j) {
      update = hn::MulAdd(hn::Set(d, write[j]), g[j], update);
      write_sums[j].Add(d, g[j], loaded_u);
    }
    hn::StoreU(update, d, a.du + row + i);
    for (int k = 0; k < n; ++k) {
      const auto slot = hn::LoadU(d, s[k] + i);
      auto sum = hn::Zero(d);
      for (int j = 0; j < n; ++j) {
        keep_sums[j][k].Add(d, g[j], slot);
        sum = hn::MulAdd(hn::Set(d, keep[j * n + k]), g[j], sum);
      }
      hn::StoreU(sum, d, ds[k] + i);
    }
  });
  for (int j = 0; j < n; ++j) {
    a.dwrite[t * n + j] += write_sums[j].Total();
    for (int k = 0; k < n; ++k) a.dkeep[(t * n + j) * n + k] += keep_sums[j][k].Total();
  }
}

// Any number of slots and any kind of write: coefficient gradients in blocks, then the slots. `loaded` holds
// a vector of every g: all are read before any is replaced.
template <Coef kWrite>
HWY_INLINE void MixVjpRow(const WriteVjpArgs& a, int64_t t, float* loaded) {
  const int n = a.m.slots;
  const int64_t dim = a.m.dim, row = t * dim, lanes = static_cast<int64_t>(hn::Lanes(Lanes()));
  const float* keep = a.keep + t * n * n;
  const auto write = CoefsOf<kWrite>(a.m, a.write, t);
  const auto slot = [&](int k) { return a.slots[k] + row; };
  const auto gradient = [&](int j) { return a.dslots[j] + row; };
  AllDots(dim, n, slot, n, gradient, [&](int k, int j, float dot) { a.dkeep[(t * n + j) * n + k] += dot; });
  if constexpr (kWrite == Coef::kToken) {
    AllDots(
        dim, n, gradient, 1, [&](int) { return a.u + row; },
        [&](int j, int, float dot) { a.dwrite[t * n + j] += dot; });
  }
  ForLanes(dim, [&](auto d, int64_t i) {
    auto update = hn::Zero(d);
    for (int j = 0; j < n; ++j) {
      const auto g = hn::LoadU(d, a.dslots[j] + row + i);
      hn::StoreU(g, d, loaded + j * lanes);
      update = write.TimesPlus(d, j, i, g, update);
      if constexpr (kWrite == Coef::kChannel) {
        AddProduct<kWrite>(d, hn::LoadU(d, a.u + row + i), g, nullptr, a.dwrite + (t * n + j) * dim + i);
      }
    }
    hn::StoreU(update, d, a.du + row + i);
    for (int k = 0; k < n; ++k) {
      auto sum = hn::Zero(d);
      for (int j = 0; j < n; ++j) {
        sum = hn::MulAdd(hn::Set(d, keep[j * n + k]), hn::LoadU(d, loaded + j * lanes), sum);
      }
      hn::StoreU(sum, d, a.dslots[k] + row + i);
    }
  });
}

template <Coef kWrite>
HWY_INLINE void MixVjpRows(const WriteVjpArgs& a, int64_t begin, int64_t end) {
  if constexpr (kWrite == Coef::kToken) {
    for (int64_t t = begin; t < end && a.m.slots == 2; ++t) MixVjpRowOf<2>(a, t);
    for (int64_t t = begin; t < end && a.m.slots == 4; ++t) MixVjpRowOf<4>(a, t);
    if (a.m.slots == 2 || a.m.slots == 4) return;
  }
  std::vector<float> loaded(static_cast<size_t>(a.m.slots) * hn::Lanes(Lanes()));
  for (int64_t t = begin; t < end; ++t) MixVjpRow<kWrite>(a, t, loaded.data());
}

void WriteVjpRows(const MixDims& m, Coef keep_kind, const float* keep, Coef write_kind, const float* write,
                  const float* const* slots, const float* u, float* const* dslots, float* du, float* dkeep,
                  float* dwrite, int64_t begin, int64_t end) {
  const WriteVjpArgs a{m, keep, write, slots, u, dslots, du, dkeep, dwrite};
  WithCoef(write_kind, [&](auto write_tag) {
    constexpr Coef kWrite = decltype(write_tag)::value;
    if (keep_kind == Coef::kMatrix) MixVjpRows<kWrite>(a, begin, end);
    WithCoef(keep_kind, [&](auto keep_tag) {
      constexpr Coef kKeep = decltype(keep_tag)::value;
      for (int64_t t = begin; t < end; ++t) {
        std::fill_n(du + t * m.dim, m.dim, 0.0f);
        for (int j = 0; j < m.slots; ++j) WriteVjpSlot<kKeep, kWrite>(a, t, j);
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace strata
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {

HWY_EXPORT(WriteVjpRows);

constexpr int64_t kWriteVjpRows = 32;  // tokens per chunk

template <>
void WriteVjp(const MixDims& m, Coef keep_kind, const float* keep, Coef write_kind, const float* write,
              const float* const* slots, const float* u, float* const* dslots, float* du, float* dkeep,
              float* dwrite) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(WriteVjpRows);
  ParallelFor(m.tokens, kWriteVjpRows, [&](int64_t b, int64_t e) {
    kernel(m, keep_kind, keep, write_kind, write, slots, u, dslots, du, dkeep, dwrite, b, e);
  });
}

}  // namespace strata
#endif  // HWY_ONCE
