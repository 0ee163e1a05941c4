#ifndef STRATA_RESIDUAL_OWN_QUERIES_H_
#define STRATA_RESIDUAL_OWN_QUERIES_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "base/parallel.h"
#include "ops/project.h"
#include "residual/decide.h"
#include "residual/mechanism.h"

namespace strata {

// `sense` where Sense (ops/mix.h) does not fit: a query of every token's own, and heads that see only their
// group of dim / heads neighbouring channels. query: token t's is at query + t * stride; stride 0: one for
// all.
template <class T>
struct OwnQueries {
  const T* query = nullptr;
  int64_t stride = 0;
  int64_t heads = 1;
};

inline constexpr int64_t kOwnChunk = 64;  // tokens

// dot[t,k,h] = sum over the channels of head h of query * S_k;  sq[t,k] = |S_k|^2.  Both assigned.
template <class T>
void SenseOwn(const OwnQueries<T>& q, int64_t dim, const State<T>& s, T* dot, T* sq) {
  const auto slots = static_cast<int64_t>(s.slots.size());
  const int64_t width = dim / q.heads;
  ParallelFor(s.tokens, kOwnChunk, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * slots; i < end * slots; ++i) {
      const int64_t t = i / slots;
      const T *row = s.slots[static_cast<size_t>(i % slots)] + t * dim, *query = q.query + t * q.stride;
      sq[i] = T(0);
      for (int64_t h = 0; h < q.heads; ++h) {
        T sum(0);
        for (int64_t d = h * width; d < (h + 1) * width; ++d) {
          sum += query[d] * row[d];
          sq[i] += row[d] * row[d];
        }
        dot[i * q.heads + h] = sum;
      }
    }
  });
}

// ds accumulated; dquery [tokens, dim] assigned, or [chunks, dim] (sums of kOwnChunk tokens) where stride is
// 0.
template <class T>
void SenseOwnVjp(const OwnQueries<T>& q, int64_t dim, const State<T>& s, const T* ddot, const T* dsq,
                 const State<T>& ds, T* dquery) {
  const auto slots = static_cast<int64_t>(s.slots.size());
  const int64_t width = dim / q.heads;
  ParallelFor(s.tokens, kOwnChunk, [&](int64_t begin, int64_t end) {
    std::vector<double> sum(static_cast<size_t>(dim), 0.0);
    for (int64_t t = begin; t < end; ++t) {
      const T* query = q.query + t * q.stride;
      if (q.stride > 0) sum.assign(sum.size(), 0.0);
      for (int64_t k = 0; k < slots; ++k) {
        const T* row = s.slots[static_cast<size_t>(k)] + t * dim;
        T* drow = ds.slots[static_cast<size_t>(k)] + t * dim;
        for (int64_t d = 0; d < dim; ++d) {
          const T g = ddot[(t * slots + k) * q.heads + d / width];
          drow[d] += g * query[d] + T(2) * dsq[t * slots + k] * row[d];
          sum[static_cast<size_t>(d)] += static_cast<double>(g) * static_cast<double>(row[d]);
        }
      }
      T* to = dquery + (q.stride > 0 ? t : begin / kOwnChunk) * dim;
      for (int64_t d = 0; d < dim; ++d) to[d] = static_cast<T>(sum[static_cast<size_t>(d)]);
    }
  });
}

// queries [tokens, dim] = w N(newest slot), N without gain, w [dim, dim]; rstd [tokens] = 1 / rms of that
// slot.
template <class T>
void QueryNewest(int64_t dim, const T* w, double eps, const State<T>& s, T* queries, T* rstd) {
  ParallelFor(s.tokens, kProjectRows, [&](int64_t begin, int64_t end) {
    static thread_local Buffer<T> unit;
    unit.Resize((end - begin) * dim);
    for (int64_t t = begin; t < end; ++t) {
      const T* row = s.slots.back() + t * dim;
      T sq(0);
      for (int64_t d = 0; d < dim; ++d) sq += row[d] * row[d];
      rstd[t] = HoldsDigits(sq, dim, eps)
                    ? Rstd(sq, dim, eps)
                    : SenseScaled(1, dim, 0, row, 0, 0, &row, eps, static_cast<T*>(nullptr));
      for (int64_t d = 0; d < dim; ++d) unit[(t - begin) * dim + d] = row[d] * rstd[t];
    }
    Project(end - begin, dim, dim, w, dim, unit.data(), queries + begin * dim);
  });
}

// From dqueries [tokens, dim] to the newest slot (ds accumulated) and dw (accumulated).
template <class T>
void QueryNewestVjp(int64_t dim, const T* w, const T* rstd, const State<T>& s, const T* dqueries,
                    const State<T>& ds, T* dw) {
  static thread_local Buffer<T> unit_of_thread;
  unit_of_thread.Resize(s.tokens * dim);
  T* unit = unit_of_thread.data();
  ParallelFor(s.tokens, kProjectRows, [&](int64_t begin, int64_t end) {
    static thread_local Buffer<T> dunit;
    dunit.Resize((end - begin) * dim);
    ProjectBack(end - begin, dim, dim, w, dim, dqueries + begin * dim, dunit.data());
    for (int64_t t = begin; t < end; ++t) {
      const T *du = dunit.data() + (t - begin) * dim, *row = s.slots.back() + t * dim;
      T *n = unit + t * dim, *drow = ds.slots.back() + t * dim, mean(0);
      for (int64_t d = 0; d < dim; ++d) {
        n[d] = row[d] * rstd[t];
        mean += du[d] * n[d];
      }
      mean = mean / T(static_cast<RealOf<T>>(dim));
      for (int64_t d = 0; d < dim; ++d) drow[d] += rstd[t] * (du[d] - n[d] * mean);
    }
  });
  ProjectWeights(s.tokens, dim, dim, dqueries, unit, dw, dim);
}

}  // namespace strata

#endif  // STRATA_RESIDUAL_OWN_QUERIES_H_
