#ifndef STRATA_OPS_REF_H_
#define STRATA_OPS_REF_H_

#include <cstddef>
#include <vector>

#include "ops/mix.h"

// The scalar truth of the law: every op and VJP as plain loops over any scalar type (float, double;
// complex<double> for the forward ops). Contracts are those of ops/mix.h.
namespace strata::ref {

// Coefficient of slot k (of n) at token t, channel d.
template <class T>
T At(Coef kind, const T* c, int64_t t, int64_t k, int64_t n, int64_t d, int64_t dim) {
  switch (kind) {
    case Coef::kOne:
      return T(1);
    case Coef::kToken:
      return c[t * n + k];
    case Coef::kChannel:
      return c[(t * n + k) * dim + d];
    case Coef::kMatrix:
      break;
  }
  return T(0);
}

template <class T>
void Accumulate(Coef kind, T* c, int64_t t, int64_t k, int64_t n, int64_t d, int64_t dim, T value) {
  if (kind == Coef::kToken) c[t * n + k] += value;
  if (kind == Coef::kChannel) c[(t * n + k) * dim + d] += value;
}

template <class T>
void Read(const MixDims& m, Coef kind, const T* read, const T* const* slots, T* x) {
  for (int64_t t = 0; t < m.tokens; ++t) {
    for (int64_t d = 0; d < m.dim; ++d) {
      T sum(0);
      for (int k = 0; k < m.slots; ++k)
        sum += At(kind, read, t, k, m.slots, d, m.dim) * slots[k][t * m.dim + d];
      x[t * m.dim + d] = sum;
    }
  }
}

template <class T>
void ReadVjp(const MixDims& m, Coef kind, const T* read, const T* const* slots, const T* dx, T* const* dslots,
             T* dread) {
  for (int64_t t = 0; t < m.tokens; ++t) {
    for (int k = 0; k < m.slots; ++k) {
      for (int64_t d = 0; d < m.dim; ++d) {
        const int64_t i = t * m.dim + d;
        dslots[k][i] += At(kind, read, t, k, m.slots, d, m.dim) * dx[i];
        if (kind != Coef::kOne) Accumulate(kind, dread, t, k, m.slots, d, m.dim, slots[k][i] * dx[i]);
      }
    }
  }
}

template <class T>
void Write(const MixDims& m, Coef keep_kind, const T* keep, Coef write_kind, const T* write,
           const T* const* slots, const T* u, T* const* next) {
  const int64_t n = m.slots;
  std::vector<T> out(static_cast<size_t>(n));
  for (int64_t t = 0; t < m.tokens; ++t) {
    for (int64_t d = 0; d < m.dim; ++d) {
      const int64_t i = t * m.dim + d;
      for (int64_t j = 0; j < n; ++j) {
        T kept(0);
        if (keep_kind == Coef::kMatrix) {
          for (int64_t k = 0; k < n; ++k) kept += keep[(t * n + j) * n + k] * slots[k][i];
        } else {
          kept = At(keep_kind, keep, t, j, n, d, m.dim) * slots[j][i];
        }
        out[static_cast<size_t>(j)] = kept + At(write_kind, write, t, j, n, d, m.dim) * u[i];
      }
      for (int64_t j = 0; j < n; ++j) next[j][i] = out[static_cast<size_t>(j)];
    }
  }
}

template <class T>
void WriteVjp(const MixDims& m, Coef keep_kind, const T* keep, Coef write_kind, const T* write,
              const T* const* slots, const T* u, T* const* dslots, T* du, T* dkeep, T* dwrite) {
  const int64_t n = m.slots;
  std::vector<T> g(static_cast<size_t>(n)), ds(static_cast<size_t>(n));
  for (int64_t t = 0; t < m.tokens; ++t) {
    for (int64_t d = 0; d < m.dim; ++d) {
      const int64_t i = t * m.dim + d;
      T update(0);
      for (int64_t j = 0; j < n; ++j) {
        g[static_cast<size_t>(j)] = dslots[j][i];
        ds[static_cast<size_t>(j)] = T(0);
      }
      for (int64_t j = 0; j < n; ++j) {
        const T gj = g[static_cast<size_t>(j)];
        update += At(write_kind, write, t, j, n, d, m.dim) * gj;
        if (write_kind != Coef::kOne) Accumulate(write_kind, dwrite, t, j, n, d, m.dim, u[i] * gj);
        if (keep_kind == Coef::kMatrix) {
          for (int64_t k = 0; k < n; ++k) {
            ds[static_cast<size_t>(k)] += keep[(t * n + j) * n + k] * gj;
            dkeep[(t * n + j) * n + k] += gj * slots[k][i];
          }
        } else {
          ds[static_cast<size_t>(j)] += At(keep_kind, keep, t, j, n, d, m.dim) * gj;
          if (keep_kind != Coef::kOne) Accumulate(keep_kind, dkeep, t, j, n, d, m.dim, gj * slots[j][i]);
        }
      }
      du[i] = update;
      for (int64_t j = 0; j < n; ++j) dslots[j][i] = ds[static_cast<size_t>(j)];
    }
  }
}

template <class T>
void Sense(const MixDims& m, int rows, const T* phi, int64_t slot_stride, int64_t row_stride,
           const T* const* slots, T* dot, T* sq) {
  for (int64_t t = 0; t < m.tokens; ++t) {
    for (int k = 0; k < m.slots; ++k) {
      const T* s = slots[k] + t * m.dim;
      if (sq != nullptr) {
        T sum(0);
        for (int64_t d = 0; d < m.dim; ++d) sum += s[d] * s[d];
        sq[t * m.slots + k] = sum;
      }
      for (int r = 0; r < rows; ++r) {
        const T* w = phi + k * slot_stride + r * row_stride;
        T sum(0);
        for (int64_t d = 0; d < m.dim; ++d) sum += w[d] * s[d];
        dot[(t * m.slots + k) * rows + r] = sum;
      }
    }
  }
}

template <class T>
void SenseVjp(const MixDims& m, int rows, const T* phi, int64_t slot_stride, int64_t row_stride,
              const T* const* slots, const T* ddot, const T* dsq, T* const* dslots, T* dphi) {
  for (int64_t t = 0; t < m.tokens; ++t) {
    for (int k = 0; k < m.slots; ++k) {
      for (int64_t d = 0; d < m.dim; ++d) {
        const int64_t i = t * m.dim + d;
        T g = dsq == nullptr ? T(0) : T(2) * dsq[t * m.slots + k] * slots[k][i];
        for (int r = 0; r < rows; ++r) {
          const int64_t at = k * slot_stride + r * row_stride + d;
          const T dr = ddot[(t * m.slots + k) * rows + r];
          g += dr * phi[at];
          if (dphi != nullptr) dphi[at] += dr * slots[k][i];
        }
        dslots[k][i] += g;
      }
    }
  }
}

}  // namespace strata::ref

#endif  // STRATA_OPS_REF_H_
