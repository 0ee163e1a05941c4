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

// May Rstd take this sum of squares? Not where it overflowed, nor where squares beside it were too small to
// be numbers: then SenseScaled.
template <class T>
bool HoldsDigits(T sq, int64_t size, double eps) {
  using R = RealOf<T>;
  constexpr R kLeast = std::numeric_limits<R>::min() / std::numeric_limits<R>::epsilon();
  const R mean = Real(sq) / static_cast<R>(size) + static_cast<R>(eps);
  return std::isfinite(mean) && mean >= kLeast;
}

// 1 / sqrt(sq / size + eps): the factor that gives `size` numbers with sum of squares sq a mean square of 1.
template <class T>
T Rstd(T sq, int64_t size, double eps) {
  using R = RealOf<T>;
  return T(1) / std::sqrt(sq / T(static_cast<R>(size)) + T(static_cast<R>(eps)));
}

// The factor that brings numbers of at most `top`, and sqrt(eps), down (or up) to at most 1.
inline double DownFrom(double top, double eps) {
  const double most = std::max(top, std::sqrt(eps));
  return most > 0 ? std::min(1 / most, std::numeric_limits<double>::max()) : 1;
}
// 1 / sqrt(mean_square) where both were scaled by `down`, as a factor of the numbers before; the largest
// number for all zeros is that of the smallest mean square.
template <class T, class W>
T RstdScaled(W mean_square, double down) {
  using R = RealOf<T>;
  if (Real(mean_square) == 0) return T(1) / std::sqrt(T(std::numeric_limits<R>::min()));
  const W rstd = W(1) / std::sqrt(mean_square) * W(down);
  constexpr R kMost = std::numeric_limits<R>::max();
  return Real(rstd) > static_cast<double>(kMost) ? T(kMost) : static_cast<T>(rstd);
}

// One token whose sums overflow or vanish: senses down * S instead of S.
//   dot[m] = sum_k <phi[k,m,:], S[k,:]> * r,   r = 1 / sqrt(|S|^2 / (slots dim) + eps)
// phi strides as in Sense (ops/mix.h). dot [m] assigned; returns r. All finite where S is.
template <class T>
T SenseScaled(int slots, int64_t dim, int m, const T* phi, int64_t slot_stride, int64_t row_stride,
              const T* const* rows, double eps, T* dot) {
  double top = 0, sq = 0;
  for (int k = 0; k < slots; ++k) {
    for (int64_t d = 0; d < dim; ++d) top = std::max(top, static_cast<double>(std::abs(rows[k][d])));
  }
  const double down = DownFrom(top, eps);
  for (int k = 0; k < slots; ++k) {
    for (int64_t d = 0; d < dim; ++d) {
      const double v = static_cast<double>(Real(rows[k][d])) * down;
      sq += v * v;
    }
  }
  const double square = sq / static_cast<double>(slots * dim) + eps * down * down;
  const double r = square > 0 ? 1 / std::sqrt(square) : 0;
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
  return RstdScaled<T>(square, down);
}

}  // namespace strata

#endif  // STRATA_RESIDUAL_DECIDE_H_
