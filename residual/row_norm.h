#ifndef STRATA_RESIDUAL_ROW_NORM_H_
#define STRATA_RESIDUAL_ROW_NORM_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "residual/decide.h"

namespace strata {

// The norm of one slot of one token, without gain and bias:
//   out = (row - mean) * rstd,   rstd = 1 / sqrt(mean((row - mean)^2) + eps);   rms: mean = 0
// Sums of float run in double, so that neither a large mean nor a huge row takes the digits away. Finite for
// every finite row; a constant row gives exact zeros.
template <class T>
class RowNorm {
 public:
  RowNorm(int64_t dim, bool centred, double eps) : dim_(dim), centred_(centred), eps_(eps) {}

  // out [dim] assigned; returns rstd.
  T Apply(const T* row, T* out) const {
    double scale = 1;
    W mean = Mean(row, W(1)), square = Square(row, W(1), mean);
    if (!HoldsDigits(square, 1, eps_)) {
      double top = 0;
      for (int64_t d = 0; d < dim_; ++d) top = std::max(top, static_cast<double>(std::abs(row[d])));
      scale = DownFrom(top, eps_);
      mean = Mean(row, W(scale));
      square = Square(row, W(scale), mean);
    }
    square += W(eps_ * scale * scale);
    const W down = W(scale), rstd = Real(square) == 0 ? W(0) : W(1) / std::sqrt(square);
    for (int64_t d = 0; d < dim_; ++d) out[d] = static_cast<T>((W(row[d]) * down - mean) * rstd);
    return RstdScaled<T>(square, scale);
  }

  // dout, out [dim] and rstd of Apply: drow += rstd * (dout - mean(dout) - out * mean(dout * out)).
  void Vjp(const T* out, T rstd, const T* dout, T* drow) const {
    const W mean = centred_ ? Sum([&](int64_t d) { return W(dout[d]); }) / Size() : W(0);
    const W along = Sum([&](int64_t d) { return W(dout[d]) * W(out[d]); }) / Size();
    for (int64_t d = 0; d < dim_; ++d) {
      drow[d] += static_cast<T>((W(dout[d]) - mean - W(out[d]) * along) * W(rstd));
    }
  }

 private:
  using W = Wide<T>;
  W Size() const { return W(static_cast<RealOf<W>>(dim_)); }
  W Mean(const T* row, W down) const {
    return centred_ ? Sum([&](int64_t d) { return W(row[d]) * down; }) / Size() : W(0);
  }
  W Square(const T* row, W down, W mean) const {
    const auto squared = [&](int64_t d) {
      const W v = W(row[d]) * down - mean;
      return v * v;
    };
    return Sum(squared) / Size();
  }
  // In one order for every caller, in lanes that a compiler can vectorise.
  template <class F>
  W Sum(F&& f) const {
    constexpr int64_t kLanes = 8;
    W lanes[kLanes] = {};
    int64_t d = 0;
    for (; d + kLanes <= dim_; d += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) lanes[l] += f(d + l);
    }
    for (int64_t l = 0; d < dim_; ++l, ++d) lanes[l] += f(d);
    W sum = W(0);
    for (const W& lane : lanes) sum += lane;
    return sum;
  }

  int64_t dim_;
  bool centred_;
  double eps_;
};

}  // namespace strata

#endif  // STRATA_RESIDUAL_ROW_NORM_H_
