#ifndef STRATA_RESIDUAL_DECIDE_H_
#define STRATA_RESIDUAL_DECIDE_H_

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace strata {

// The per-token scalar maths of the mechanisms: what turns sensed numbers into coefficients.

template <class T>
struct RealOfType {
  using type = T;
};
template <class T>
struct RealOfType<std::complex<T>> {
  using type = T;
};
template <class T>
using RealOf = typename RealOfType<T>::type;
// What sums of float run in where float is too narrow.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, float>, double, T>;

inline float Real(float x) { return x; }
inline double Real(double x) { return x; }
inline double Real(const std::complex<double>& x) { return x.real(); }

// Sums of products of huge numbers may overflow; their sign is then all that is left of them.
inline double Saturated(double x) {
  if (std::isnan(x)) return 0;
  constexpr double kMost = std::numeric_limits<float>::max();
  return std::isinf(x) ? std::copysign(kMost, x) : x;
}

template <class T>
T Sigmoid(T z) {
  if (Real(z) >= 0) return T(1) / (T(1) + std::exp(-z));
  const T e = std::exp(z);
  return e / (T(1) + e);
}

// z[i] to exp(z[i]) / sum exp(z), the largest (real part) subtracted first.
template <class T>
void Softmax(int64_t size, const T* z, T* out) {
  RealOf<T> top = Real(z[0]);
  for (int64_t i = 1; i < size; ++i) top = std::max(top, Real(z[i]));
  T sum = T(0);
  for (int64_t i = 0; i < size; ++i) {
    out[i] = std::exp(z[i] - T(top));
    sum += out[i];
  }
  const T scale = T(1) / sum;
  for (int64_t i = 0; i < size; ++i) out[i] = size == 1 ? T(1) : out[i] * scale;
}

// 1 / sqrt(sq / size + eps): the factor that gives `size` numbers with sum of squares sq a mean square of 1.
// eps is at least the smallest normal number, so that all zeros stay finite.
template <class T>
T Rstd(T sq, int64_t size, double eps) {
  using R = RealOf<T>;
  const R floor = std::max(static_cast<R>(eps), std::numeric_limits<R>::min());
  return T(1) / std::sqrt(sq / T(static_cast<R>(size)) + T(floor));
}

// One token whose sums overflow: senses S / top instead of S, where top = max |S|.
//   dot[m] = sum_k <phi[k,m,:], S[k,:]> * r,   r = 1 / sqrt(|S|^2 / (slots dim) + eps)
// phi strides as in Sense (ops/mix.h). dot [m] assigned; returns r. All finite where S is.
template <class T>
T SenseScaled(int slots, int64_t dim, int m, const T* phi, int64_t slot_stride, int64_t row_stride,
              const T* const* rows, double eps, T* dot) {
  double top = 0, sq = 0;
  for (int k = 0; k < slots; ++k) {
    for (int64_t d = 0; d < dim; ++d) top = std::max(top, static_cast<double>(std::abs(rows[k][d])));
  }
  const double down = top > 0 ? 1 / top : 1;
  for (int k = 0; k < slots; ++k) {
    for (int64_t d = 0; d < dim; ++d) {
      const double v = static_cast<double>(Real(rows[k][d])) * down;
      sq += v * v;
    }
  }
  const double r = 1 / std::sqrt(sq / static_cast<double>(slots * dim) + eps * down * down +
                                 std::numeric_limits<double>::min());
  for (int i = 0; i < m; ++i) {
    double sum = 0;
    for (int k = 0; k < slots; ++k) {
      const T* row = phi + k * slot_stride + i * row_stride;
      for (int64_t d = 0; d < dim; ++d) {
        sum += static_cast<double>(Real(row[d])) * (static_cast<double>(Real(rows[k][d])) * down);
      }
    }
    dot[i] = T(static_cast<RealOf<T>>(sum * r));
  }
  return T(static_cast<RealOf<T>>(r * down));
}

}  // namespace strata

#endif  // STRATA_RESIDUAL_DECIDE_H_
