#include "ops/mix.h"

#include <complex>
#include <vector>

#include "base/parallel.h"
#include "ops/ref.h"

#ifndef STRATA_OPS_MIX_PROJECTION_
#define STRATA_OPS_MIX_PROJECTION_
namespace strata {
struct Projection {
  int rows;
  const float* phi;
  int64_t slot_stride, row_stride;
};
}  // namespace strata
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/mix.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "ops/simd-inl.h"

// The float kernels work on tokens [begin, end). Each follows the scalar line of ref.h that it implements;
// within a row the order of a sum depends on dim alone.
HWY_BEFORE_NAMESPACE();
namespace strata {
namespace HWY_NAMESPACE {

// Coefficient of slot k at token t as a vector over channels i.
template <class D>
HWY_INLINE hn::Vec<D> At(D d, Coef kind, const float* c, int64_t t, int k, const MixDims& m, int64_t i) {
  if (kind == Coef::kOne) return hn::Set(d, 1.0f);
  if (kind == Coef::kToken) return hn::Set(d, c[t * m.slots + k]);
  return hn::LoadU(d, c + (t * m.slots + k) * m.dim + i);
}

HWY_INLINE float DotRows(int64_t size, const float* a, const float* b) {
  return SumLanes(size, [&](auto d, int64_t i) { return hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i)); });
}

// Gradient of a coefficient of slot k: <a, b> per token, a * b per channel.
HWY_INLINE void AddCoefGradient(Coef kind, const MixDims& m, int64_t t, int k, const float* a, const float* b,
                                float* gradient) {
  if (kind == Coef::kToken) gradient[t * m.slots + k] += DotRows(m.dim, a, b);
  if (kind != Coef::kChannel) return;
  float* row = gradient + (t * m.slots + k) * m.dim;
  ForLanes(m.dim, [&](auto d, int64_t i) {
    hn::StoreU(hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), hn::LoadU(d, row + i)), d, row + i);
  });
}

void ReadRows(const MixDims& m, Coef kind, const float* read, const float* const* slots, float* x,
              int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    ForLanes(m.dim, [&](auto d, int64_t i) {
      auto sum = hn::Mul(At(d, kind, read, t, 0, m, i), hn::LoadU(d, slots[0] + t * m.dim + i));
      for (int k = 1; k < m.slots; ++k) {
        sum = hn::MulAdd(At(d, kind, read, t, k, m, i), hn::LoadU(d, slots[k] + t * m.dim + i), sum);
      }
      hn::StoreU(sum, d, x + t * m.dim + i);
    });
  }
}

void ReadVjpRows(const MixDims& m, Coef kind, const float* read, const float* const* slots, const float* dx,
                 float* const* dslots, float* dread, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const float* g = dx + t * m.dim;
    for (int k = 0; k < m.slots; ++k) {
      if (kind != Coef::kOne) AddCoefGradient(kind, m, t, k, slots[k] + t * m.dim, g, dread);
      float* ds = dslots[k] + t * m.dim;
      ForLanes(m.dim, [&](auto d, int64_t i) {
        hn::StoreU(hn::MulAdd(At(d, kind, read, t, k, m, i), hn::LoadU(d, g + i), hn::LoadU(d, ds + i)), d,
                   ds + i);
      });
    }
  }
}

void WriteRows(const MixDims& m, Coef keep_kind, const float* keep, Coef write_kind, const float* write,
               const float* const* slots, const float* u, float* const* next, int64_t begin, int64_t end) {
  const int n = m.slots;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  std::vector<float> loaded(static_cast<size_t>(n * lanes));  // all slots are read before any is written
  for (int64_t t = begin; t < end; ++t) {
    ForLanes(m.dim, [&](auto d, int64_t i) {
      const int64_t at = t * m.dim + i;
      const auto update = hn::LoadU(d, u + at);
      if (keep_kind != Coef::kMatrix) {
        for (int j = 0; j < n; ++j) {
          const auto kept = hn::Mul(At(d, keep_kind, keep, t, j, m, i), hn::LoadU(d, slots[j] + at));
          hn::StoreU(hn::MulAdd(At(d, write_kind, write, t, j, m, i), update, kept), d, next[j] + at);
        }
        return;
      }
      for (int k = 0; k < n; ++k) hn::StoreU(hn::LoadU(d, slots[k] + at), d, loaded.data() + k * lanes);
      for (int j = 0; j < n; ++j) {
        auto sum = hn::Mul(At(d, write_kind, write, t, j, m, i), update);
        const float* row = keep + (t * n + j) * n;
        for (int k = 0; k < n; ++k) {
          sum = hn::MulAdd(hn::Set(d, row[k]), hn::LoadU(d, loaded.data() + k * lanes), sum);
        }
        hn::StoreU(sum, d, next[j] + at);
      }
    });
  }
}

void WriteVjpRows(const MixDims& m, Coef keep_kind, const float* keep, Coef write_kind, const float* write,
                  const float* const* slots, const float* u, float* const* dslots, float* du, float* dkeep,
                  float* dwrite, int64_t begin, int64_t end) {
  const int n = m.slots;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  std::vector<float> loaded(static_cast<size_t>(n * lanes));
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t * m.dim;
    for (int j = 0; j < n; ++j) {
      const float* g = dslots[j] + row;
      if (write_kind != Coef::kOne) AddCoefGradient(write_kind, m, t, j, u + row, g, dwrite);
      if (keep_kind == Coef::kMatrix) {
        for (int k = 0; k < n; ++k) dkeep[(t * n + j) * n + k] += DotRows(m.dim, g, slots[k] + row);
      } else if (keep_kind != Coef::kOne) {
        AddCoefGradient(keep_kind, m, t, j, g, slots[j] + row, dkeep);
      }
    }
    ForLanes(m.dim, [&](auto d, int64_t i) {
      auto update = hn::Zero(d);
      for (int j = 0; j < n; ++j) {
        const auto g = hn::LoadU(d, dslots[j] + row + i);
        hn::StoreU(g, d, loaded.data() + j * lanes);
        update = hn::MulAdd(At(d, write_kind, write, t, j, m, i), g, update);
      }
      hn::StoreU(update, d, du + row + i);
      if (keep_kind == Coef::kOne) return;
      for (int k = 0; k < n; ++k) {
        auto sum = hn::Zero(d);
        if (keep_kind == Coef::kMatrix) {
          for (int j = 0; j < n; ++j) {
            sum = hn::MulAdd(hn::Set(d, keep[(t * n + j) * n + k]), hn::LoadU(d, loaded.data() + j * lanes),
                             sum);
          }
        } else {
          sum = hn::Mul(At(d, keep_kind, keep, t, k, m, i), hn::LoadU(d, loaded.data() + k * lanes));
        }
        hn::StoreU(sum, d, dslots[k] + row + i);
      }
    });
  }
}

// dot[r] = <phi_r, s> for four rows of phi at a time.
HWY_INLINE void FourDots(int64_t dim, const float* phi, int64_t stride, const float* s, float* dot) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d), e = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= dim; i += lanes) {
    const auto v = hn::LoadU(d, s + i);
    a = hn::MulAdd(hn::LoadU(d, phi + i), v, a);
    b = hn::MulAdd(hn::LoadU(d, phi + stride + i), v, b);
    c = hn::MulAdd(hn::LoadU(d, phi + 2 * stride + i), v, c);
    e = hn::MulAdd(hn::LoadU(d, phi + 3 * stride + i), v, e);
  }
  dot[0] = hn::GetLane(hn::SumOfLanes(d, a));
  dot[1] = hn::GetLane(hn::SumOfLanes(d, b));
  dot[2] = hn::GetLane(hn::SumOfLanes(d, c));
  dot[3] = hn::GetLane(hn::SumOfLanes(d, e));
  for (; i < dim; ++i) {
    for (int r = 0; r < 4; ++r) dot[r] += phi[r * stride + i] * s[i];
  }
}

void SenseRows(const MixDims& m, const Projection& p, const float* const* slots, float* dot, float* sq,
               int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int k = 0; k < m.slots; ++k) {
      const float* s = slots[k] + t * m.dim;
      if (sq != nullptr) sq[t * m.slots + k] = DotRows(m.dim, s, s);
      const float* phi = p.phi + k * p.slot_stride;
      float* out = dot + (t * m.slots + k) * p.rows;
      int r = 0;
      for (; r + 4 <= p.rows; r += 4) FourDots(m.dim, phi + r * p.row_stride, p.row_stride, s, out + r);
      for (; r < p.rows; ++r) out[r] = DotRows(m.dim, phi + r * p.row_stride, s);
    }
  }
}

void SenseVjpRows(const MixDims& m, const Projection& p, const float* const* slots, const float* ddot,
                  const float* dsq, float* const* dslots, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int k = 0; k < m.slots; ++k) {
      const float *s = slots[k] + t * m.dim, *phi = p.phi + k * p.slot_stride;
      const float* dr = ddot + (t * m.slots + k) * p.rows;
      const float of_square = dsq == nullptr ? 0.0f : 2.0f * dsq[t * m.slots + k];
      float* ds = dslots[k] + t * m.dim;
      ForLanes(m.dim, [&](auto d, int64_t i) {
        auto sum = hn::MulAdd(hn::Set(d, of_square), hn::LoadU(d, s + i), hn::LoadU(d, ds + i));
        for (int r = 0; r < p.rows; ++r) {
          sum = hn::MulAdd(hn::Set(d, dr[r]), hn::LoadU(d, phi + r * p.row_stride + i), sum);
        }
        hn::StoreU(sum, d, ds + i);
      });
    }
  }
}

// dphi of channels [begin, end), summed over blocks of tokens that stay in the first cache.
void SenseVjpColumns(const MixDims& m, const Projection& p, const float* const* slots, const float* ddot,
                     float* dphi, int64_t begin, int64_t end) {
  constexpr int64_t kTokens = 64;
  for (int64_t first = 0; first < m.tokens; first += kTokens) {
    const int64_t last = HWY_MIN(m.tokens, first + kTokens);
    for (int k = 0; k < m.slots; ++k) {
      for (int r = 0; r < p.rows; r += 4) {
        const int rows = HWY_MIN(4, p.rows - r);
        ForLanes(end - begin, [&](auto d, int64_t i) {
          auto a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d), e = hn::Zero(d);
          for (int64_t t = first; t < last; ++t) {
            const auto v = hn::LoadU(d, slots[k] + t * m.dim + begin + i);
            const float* g = ddot + (t * m.slots + k) * p.rows + r;
            a = hn::MulAdd(hn::Set(d, g[0]), v, a);
            if (rows > 1) b = hn::MulAdd(hn::Set(d, g[1]), v, b);
            if (rows > 2) c = hn::MulAdd(hn::Set(d, g[2]), v, c);
            if (rows > 3) e = hn::MulAdd(hn::Set(d, g[3]), v, e);
          }
          float* out = dphi + k * p.slot_stride + r * p.row_stride + begin + i;
          hn::StoreU(hn::Add(hn::LoadU(d, out), a), d, out);
          if (rows > 1) hn::StoreU(hn::Add(hn::LoadU(d, out + p.row_stride), b), d, out + p.row_stride);
          if (rows > 2)
            hn::StoreU(hn::Add(hn::LoadU(d, out + 2 * p.row_stride), c), d, out + 2 * p.row_stride);
          if (rows > 3)
            hn::StoreU(hn::Add(hn::LoadU(d, out + 3 * p.row_stride), e), d, out + 3 * p.row_stride);
        });
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace strata
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {

HWY_EXPORT(ReadRows);
HWY_EXPORT(ReadVjpRows);
HWY_EXPORT(WriteRows);
HWY_EXPORT(WriteVjpRows);
HWY_EXPORT(SenseRows);
HWY_EXPORT(SenseVjpRows);
HWY_EXPORT(SenseVjpColumns);

constexpr int64_t kRows = 32;     // tokens per chunk
constexpr int64_t kColumns = 64;  // channels per chunk where a sum runs over tokens

template <>
void Read(const MixDims& m, Coef kind, const float* read, const float* const* slots, float* x) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(ReadRows);
  ParallelFor(m.tokens, kRows, [&](int64_t b, int64_t e) { kernel(m, kind, read, slots, x, b, e); });
}

template <>
void ReadVjp(const MixDims& m, Coef kind, const float* read, const float* const* slots, const float* dx,
             float* const* dslots, float* dread) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(ReadVjpRows);
  ParallelFor(m.tokens, kRows,
              [&](int64_t b, int64_t e) { kernel(m, kind, read, slots, dx, dslots, dread, b, e); });
}

template <>
void Write(const MixDims& m, Coef keep_kind, const float* keep, Coef write_kind, const float* write,
           const float* const* slots, const float* u, float* const* next) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(WriteRows);
  ParallelFor(m.tokens, kRows, [&](int64_t b, int64_t e) {
    kernel(m, keep_kind, keep, write_kind, write, slots, u, next, b, e);
  });
}

template <>
void WriteVjp(const MixDims& m, Coef keep_kind, const float* keep, Coef write_kind, const float* write,
              const float* const* slots, const float* u, float* const* dslots, float* du, float* dkeep,
              float* dwrite) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(WriteVjpRows);
  ParallelFor(m.tokens, kRows, [&](int64_t b, int64_t e) {
    kernel(m, keep_kind, keep, write_kind, write, slots, u, dslots, du, dkeep, dwrite, b, e);
  });
}

template <>
void Sense(const MixDims& m, int rows, const float* phi, int64_t slot_stride, int64_t row_stride,
           const float* const* slots, float* dot, float* sq) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(SenseRows);
  const Projection p{rows, phi, slot_stride, row_stride};
  ParallelFor(m.tokens, kRows, [&](int64_t b, int64_t e) { kernel(m, p, slots, dot, sq, b, e); });
}

template <>
void SenseVjp(const MixDims& m, int rows, const float* phi, int64_t slot_stride, int64_t row_stride,
              const float* const* slots, const float* ddot, const float* dsq, float* const* dslots,
              float* dphi) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(SenseVjpRows);
  const Projection p{rows, phi, slot_stride, row_stride};
  ParallelFor(m.tokens, kRows, [&](int64_t b, int64_t e) { kernel(m, p, slots, ddot, dsq, dslots, b, e); });
  if (dphi == nullptr) return;
  const auto columns = HWY_DYNAMIC_DISPATCH(SenseVjpColumns);
  ParallelFor(m.dim, kColumns, [&](int64_t b, int64_t e) { columns(m, p, slots, ddot, dphi, b, e); });
}

// double and complex run the scalar truth.
#define STRATA_FORWARD(T)                                                                       \
  template <>                                                                                   \
  void Read(const MixDims& m, Coef kind, const T* read, const T* const* slots, T* x) {          \
    ref::Read(m, kind, read, slots, x);                                                         \
  }                                                                                             \
  template <>                                                                                   \
  void Write(const MixDims& m, Coef keep_kind, const T* keep, Coef write_kind, const T* write,  \
             const T* const* slots, const T* u, T* const* next) {                               \
    ref::Write(m, keep_kind, keep, write_kind, write, slots, u, next);                          \
  }                                                                                             \
  template <>                                                                                   \
  void Sense(const MixDims& m, int rows, const T* phi, int64_t slot_stride, int64_t row_stride, \
             const T* const* slots, T* dot, T* sq) {                                            \
    ref::Sense(m, rows, phi, slot_stride, row_stride, slots, dot, sq);                          \
  }
STRATA_FORWARD(double)
STRATA_FORWARD(std::complex<double>)

template <>
void ReadVjp(const MixDims& m, Coef kind, const double* read, const double* const* slots, const double* dx,
             double* const* dslots, double* dread) {
  ref::ReadVjp(m, kind, read, slots, dx, dslots, dread);
}
template <>
void WriteVjp(const MixDims& m, Coef keep_kind, const double* keep, Coef write_kind, const double* write,
              const double* const* slots, const double* u, double* const* dslots, double* du, double* dkeep,
              double* dwrite) {
  ref::WriteVjp(m, keep_kind, keep, write_kind, write, slots, u, dslots, du, dkeep, dwrite);
}
template <>
void SenseVjp(const MixDims& m, int rows, const double* phi, int64_t slot_stride, int64_t row_stride,
              const double* const* slots, const double* ddot, const double* dsq, double* const* dslots,
              double* dphi) {
  ref::SenseVjp(m, rows, phi, slot_stride, row_stride, slots, ddot, dsq, dslots, dphi);
}

}  // namespace strata
#endif  // HWY_ONCE
