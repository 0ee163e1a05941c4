#include <vector>

#include "base/parallel.h"
#include "ops/mix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/mix_write.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "ops/mix-inl.h"

// Write for float, on tokens [begin, end): one loop per slot where keep leaves the slots apart, else all
// slots of a vector of channels together. Each loop follows the scalar line of ref.h that it implements.
HWY_BEFORE_NAMESPACE();
namespace strata {
namespace HWY_NAMESPACE {

template <Coef kKeep, Coef kWrite>
HWY_INLINE void WriteSlot(int64_t dim, const Coefs<kKeep>& keep, const Coefs<kWrite>& write, int j,
                          const float* s, const float* u, float* next) {
  ForLanes(dim, [&](auto d, int64_t i) {
    const auto kept = keep.Times(d, j, i, hn::LoadU(d, s + i));
    hn::StoreU(write.TimesPlus(d, j, i, hn::LoadU(d, u + i), kept), d, next + i);
  });
}

// keep [slots, slots] of this token. `loaded` holds a vector of every slot: all are read before any is
// written.
template <Coef kWrite>
HWY_INLINE void MixRow(const MixDims& m, const float* keep, const Coefs<kWrite>& write,
                       const float* const* slots, const float* u, int64_t row, float* const* next,
                       float* loaded) {
  const int n = m.slots;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Lanes()));
  ForLanes(m.dim, [&](auto d, int64_t i) {
    const auto update = hn::LoadU(d, u + row + i);
    for (int k = 0; k < n; ++k) hn::StoreU(hn::LoadU(d, slots[k] + row + i), d, loaded + k * lanes);
    for (int j = 0; j < n; ++j) {
      auto sum = write.Times(d, j, i, update);
      for (int k = 0; k < n; ++k) {
        sum = hn::MulAdd(hn::Set(d, keep[j * n + k]), hn::LoadU(d, loaded + k * lanes), sum);
      }
      hn::StoreU(sum, d, next[j] + row + i);
    }
  });
}

// The same for a number of slots that fits the registers.
template <int n, Coef kWrite>
HWY_INLINE void MixRowOf(const MixDims& m, const float* keep, const Coefs<kWrite>& write,
                         const float* const* slots, const float* u, int64_t row, float* const* next) {
  const float* from[n];
  float* to[n];
  for (int k = 0; k < n; ++k) {
    from[k] = slots[k] + row;
    to[k] = next[k] + row;
  }
  ForLanes(m.dim, [&](auto d, int64_t i) {
    const auto update = hn::LoadU(d, u + row + i);
    hn::Vec<decltype(d)> loaded[n];
    for (int k = 0; k < n; ++k) loaded[k] = hn::LoadU(d, from[k] + i);
    for (int j = 0; j < n; ++j) {
      auto sum = write.Times(d, j, i, update);
      for (int k = 0; k < n; ++k) sum = hn::MulAdd(hn::Set(d, keep[j * n + k]), loaded[k], sum);
      hn::StoreU(sum, d, to[j] + i);
    }
  });
}

template <Coef kWrite>
HWY_INLINE void MixRows(const MixDims& m, const float* keep, const float* write, const float* const* slots,
                        const float* u, float* const* next, int64_t begin, int64_t end) {
  std::vector<float> loaded(static_cast<size_t>(m.slots) * hn::Lanes(Lanes()));
  WithSlots(m.slots, [&](auto tag) {
    for (int64_t t = begin; t < end; ++t) {
      const float* matrix = keep + t * m.slots * m.slots;
      const auto w = CoefsOf<kWrite>(m, write, t);
      if constexpr (decltype(tag)::value > 0) {
        MixRowOf<decltype(tag)::value>(m, matrix, w, slots, u, t * m.dim, next);
      } else {
        MixRow(m, matrix, w, slots, u, t * m.dim, next, loaded.data());
      }
    }
  });
}

void WriteRows(const MixDims& m, Coef keep_kind, const float* keep, Coef write_kind, const float* write,
               const float* const* slots, const float* u, float* const* next, int64_t begin, int64_t end) {
  WithCoef(write_kind, [&](auto write_tag) {
    constexpr Coef kWrite = decltype(write_tag)::value;
    if (keep_kind == Coef::kMatrix) MixRows<kWrite>(m, keep, write, slots, u, next, begin, end);
    WithCoef(keep_kind, [&](auto keep_tag) {
      constexpr Coef kKeep = decltype(keep_tag)::value;
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = t * m.dim;
        for (int j = 0; j < m.slots; ++j) {
          WriteSlot(m.dim, CoefsOf<kKeep>(m, keep, t), CoefsOf<kWrite>(m, write, t), j, slots[j] + row,
                    u + row, next[j] + row);
        }
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace strata
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {

HWY_EXPORT(WriteRows);

constexpr int64_t kWriteRows = 32;  // tokens per chunk

template <>
void Write(const MixDims& m, Coef keep_kind, const float* keep, Coef write_kind, const float* write,
           const float* const* slots, const float* u, float* const* next) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(WriteRows);
  ParallelFor(m.tokens, kWriteRows, [&](int64_t b, int64_t e) {
    kernel(m, keep_kind, keep, write_kind, write, slots, u, next, b, e);
  });
}

}  // namespace strata
#endif  // HWY_ONCE
