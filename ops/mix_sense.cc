#include <algorithm>

#include "base/parallel.h"
#include "ops/mix.h"

// Highway compiles this file once per target; this part once.
#ifndef STRATA_OPS_MIX_SENSE_
#define STRATA_OPS_MIX_SENSE_
namespace strata {
struct Projection {
  int rows;
  const float* phi;
  int64_t slot_stride, row_stride;
};
struct Range {
  int64_t begin, end;
};
constexpr int64_t kSenseRows = 32;     // tokens per chunk
constexpr int64_t kSenseColumns = 64;  // channels per chunk where a sum runs over tokens
}  // namespace strata
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/mix_sense.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "ops/mix-inl.h"

// Sense and its gradient for float: three small matrix products, blocked so that what is loaded is used four
// times, each of whose sums keeps its own order.
HWY_BEFORE_NAMESPACE();
namespace strata {
namespace HWY_NAMESPACE {

void SenseRows(const MixDims& m, const Projection& p, const float* const* slots, float* dot, float* sq,
               int64_t begin, int64_t end) {
  const int tokens = static_cast<int>(end - begin);
  for (int k = 0; k < m.slots; ++k) {
    const float* first = slots[k] + begin * m.dim;
    AllDots(
        m.dim, p.rows, [&](int r) { return p.phi + k * p.slot_stride + r * p.row_stride; }, tokens,
        [&](int t) { return first + t * m.dim; },
        [&](int r, int t, float product) { dot[((begin + t) * m.slots + k) * p.rows + r] = product; });
    for (int64_t t = 0; sq != nullptr && t < tokens; ++t) {
      const float* s[1] = {first + t * m.dim};
      Dots<1, 1>(m.dim, s, s, sq + (begin + t) * m.slots + k);
    }
  }
}

// Calls f(d, integral_constant V, i) for V vectors of channels from i on: four, then one, then single lanes.
template <class F>
HWY_INLINE void ForBlocks(int64_t size, F&& f) {
  const Lanes d;
  const hn::CappedTag<float, 1> one;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 4 * lanes <= size; i += 4 * lanes) f(d, std::integral_constant<int, 4>(), i);
  for (; i + lanes <= size; i += lanes) f(d, std::integral_constant<int, 1>(), i);
  for (; i < size; ++i) f(one, std::integral_constant<int, 1>(), i);
}

// ds += 2 dsq s + sum_r ddot[r] phi[r] for kTokens tokens of slot k, from token t on.
template <int kTokens>
HWY_INLINE void SenseVjpTokens(const MixDims& m, const Projection& p, int k, const float* s,
                               const float* ddot, const float* dsq, float* ds, int64_t t) {
  const float* phi = p.phi + k * p.slot_stride;
  const float* g[kTokens];
  float of_square[kTokens];
  for (int q = 0; q < kTokens; ++q) {
    g[q] = ddot + ((t + q) * m.slots + k) * p.rows;
    of_square[q] = dsq == nullptr ? 0.0f : 2.0f * dsq[(t + q) * m.slots + k];
  }
  ForBlocks(m.dim, [&](auto d, auto vectors, int64_t i) {
    constexpr int V = decltype(vectors)::value;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    hn::Vec<decltype(d)> sums[kTokens][V], w[V];
    for (int q = 0; q < kTokens; ++q) {
      for (int v = 0; v < V; ++v) {
        const int64_t at = (t + q) * m.dim + i + v * lanes;
        sums[q][v] = hn::MulAdd(hn::Set(d, of_square[q]), hn::LoadU(d, s + at), hn::LoadU(d, ds + at));
      }
    }
    for (int r = 0; r < p.rows; ++r) {
      for (int v = 0; v < V; ++v) w[v] = hn::LoadU(d, phi + r * p.row_stride + i + v * lanes);
      for (int q = 0; q < kTokens; ++q) {
        const auto c = hn::Set(d, g[q][r]);
        for (int v = 0; v < V; ++v) sums[q][v] = hn::MulAdd(c, w[v], sums[q][v]);
      }
    }
    for (int q = 0; q < kTokens; ++q) {
      for (int v = 0; v < V; ++v) hn::StoreU(sums[q][v], d, ds + (t + q) * m.dim + i + v * lanes);
    }
  });
}

void SenseVjpRows(const MixDims& m, const Projection& p, const float* const* slots, const float* ddot,
                  const float* dsq, float* const* dslots, int64_t begin, int64_t end) {
  for (int k = 0; k < m.slots; ++k) {
    int64_t t = begin;
    for (; t + kBlock <= end; t += kBlock) {
      SenseVjpTokens<kBlock>(m, p, k, slots[k], ddot, dsq, dslots[k], t);
    }
    for (; t < end; ++t) SenseVjpTokens<1>(m, p, k, slots[k], ddot, dsq, dslots[k], t);
  }
}

// dphi[r .. r + kRows) of `channels` += ddot * s over `tokens` in order and, inside a token, over `slots`.
template <int kRows>
HWY_INLINE void SenseVjpPhi(const MixDims& m, const Projection& p, int r, Range channels, Range tokens,
                            Range slots, const float* const* states, const float* ddot, float* dphi) {
  ForBlocks(channels.end - channels.begin, [&](auto d, auto vectors, int64_t i) {
    constexpr int V = decltype(vectors)::value;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), at = channels.begin + i;
    float* out = dphi + slots.begin * p.slot_stride + r * p.row_stride + at;
    hn::Vec<decltype(d)> sums[kRows][V], s[V];
    for (int q = 0; q < kRows; ++q) {
      for (int v = 0; v < V; ++v) sums[q][v] = hn::LoadU(d, out + q * p.row_stride + v * lanes);
    }
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      for (int64_t k = slots.begin; k < slots.end; ++k) {
        const float* g = ddot + (t * m.slots + k) * p.rows + r;
        for (int v = 0; v < V; ++v) s[v] = hn::LoadU(d, states[k] + t * m.dim + at + v * lanes);
        for (int q = 0; q < kRows; ++q) {
          const auto c = hn::Set(d, g[q]);
          for (int v = 0; v < V; ++v) sums[q][v] = hn::MulAdd(c, s[v], sums[q][v]);
        }
      }
    }
    for (int q = 0; q < kRows; ++q) {
      for (int v = 0; v < V; ++v) hn::StoreU(sums[q][v], d, out + q * p.row_stride + v * lanes);
    }
  });
}

// All rows of dphi for one chunk of channels, over blocks of tokens that stay in the nearest caches.
void SenseVjpColumns(const MixDims& m, const Projection& p, Range channels, Range slots,
                     const float* const* states, const float* ddot, float* dphi) {
  constexpr int64_t kTokens = 64;
  for (int64_t t = 0; t < m.tokens; t += kTokens) {
    const Range tokens{t, HWY_MIN(m.tokens, t + kTokens)};
    int r = 0;
    for (; r + kBlock <= p.rows; r += kBlock) {
      SenseVjpPhi<kBlock>(m, p, r, channels, tokens, slots, states, ddot, dphi);
    }
    for (; r < p.rows; ++r) SenseVjpPhi<1>(m, p, r, channels, tokens, slots, states, ddot, dphi);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace strata
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {

HWY_EXPORT(SenseRows);
HWY_EXPORT(SenseVjpRows);
HWY_EXPORT(SenseVjpColumns);

template <>
void Sense(const MixDims& m, int rows, const float* phi, int64_t slot_stride, int64_t row_stride,
           const float* const* slots, float* dot, float* sq) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(SenseRows);
  const Projection p{rows, phi, slot_stride, row_stride};
  ParallelFor(m.tokens, kSenseRows, [&](int64_t b, int64_t e) { kernel(m, p, slots, dot, sq, b, e); });
}

template <>
void SenseVjp(const MixDims& m, int rows, const float* phi, int64_t slot_stride, int64_t row_stride,
              const float* const* slots, const float* ddot, const float* dsq, float* const* dslots,
              float* dphi) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(SenseVjpRows);
  const Projection p{rows, phi, slot_stride, row_stride};
  ParallelFor(m.tokens, kSenseRows,
              [&](int64_t b, int64_t e) { kernel(m, p, slots, ddot, dsq, dslots, b, e); });
  if (dphi == nullptr) return;
  // A task is a chunk of channels of one slot, or of all slots where they share phi.
  const auto columns = HWY_DYNAMIC_DISPATCH(SenseVjpColumns);
  const int64_t chunks = (m.dim + kSenseColumns - 1) / kSenseColumns;
  const int64_t tasks = slot_stride == 0 ? chunks : chunks * m.slots;
  ParallelFor(tasks, 1, [&](int64_t b, int64_t e) {
    for (int64_t task = b; task < e; ++task) {
      const int64_t first = task % chunks * kSenseColumns, k = task / chunks;
      const Range one{k, k + 1}, all{0, m.slots};
      columns(m, p, {first, std::min(m.dim, first + kSenseColumns)}, slot_stride == 0 ? all : one, slots,
              ddot, dphi);
    }
  });
}

}  // namespace strata
#endif  // HWY_ONCE
