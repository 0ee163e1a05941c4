#ifndef STRATA_RESIDUAL_SINKHORN_H_
#define STRATA_RESIDUAL_SINKHORN_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "residual/decide.h"

namespace strata {

// Sinkhorn's projection onto doubly stochastic matrices A [n, n] (to, from):
//   S = softmax of the logits over `to`;  rows of S + eps divided by (their sum + eps);
//   then iterations - 1 times: columns, rows divided by (their sum + eps).
// With eps = 0 this is arXiv 2512.24880 eq. 9 (exp, then columns and rows in turn): the first division by the
// column sums is the softmax. Without eps a row may hold nothing but numbers too small for a double; such
// matrices are projected in their logarithms, where a line's sum divides nothing by 0.
//
// Runs kLanes tokens at once, arrays [n * n][kLanes]: a token's result does not depend on its lane.
template <class U>
class Sinkhorn {
 public:
  static constexpr int kLanes = 16;
  Sinkhorn(int n, int iterations, double eps)
      : n_(n), iterations_(iterations), eps_(U(static_cast<RealOf<U>>(eps))) {}
  int64_t size() const { return int64_t{n_} * n_ * kLanes; }
  // Matrices after each step, which is what Vjp needs.
  int64_t history_size() const { return 2 * iterations_ * size(); }

  // history [history_size] assigned; the last matrix in it is the result.
  void Forward(const U* logits, U* history) const {
    SoftmaxColumns(logits, history);
    U* to = history + size();
    for (int64_t i = 0; i < size(); ++i) to[i] = history[i] + eps_;
    NormaliseRows(to, to);
    for (int step = 1; step < iterations_; ++step) {
      NormaliseColumns(to, to + size());
      NormaliseRows(to + size(), to + 2 * size());
      to += 2 * size();
    }
    if (Real(eps_) > 0) return;
    for (int lane = 0; lane < kLanes; ++lane) {
      if (HasTiny(history, lane)) ForwardInLogarithms(logits + lane, history + lane);
    }
  }
  const U* Result(const U* history) const { return history + history_size() - size(); }

  // The derivative of the computed forward, step by step in the logarithms: for Y = X / (sum X + eps),
  // dlog X = dlog Y - Y * sum dlog Y, which divides by nothing.
  // g: in dL/dA, out dL/dlogits.
  void Vjp(const U* history, U* g) const {
    const U* y = Result(history);
    for (int64_t i = 0; i < size(); ++i) g[i] *= y[i];
    for (int step = iterations_ - 1; step > 0; --step, y -= 2 * size()) {
      Project(n_, 1, y, g);
      Project(1, n_, y - size(), g);
    }
    Project(n_, 1, y, g);
    for (int64_t i = 0; Real(eps_) > 0 && i < size(); ++i) g[i] *= history[i] / (history[i] + eps_);
    Project(1, n_, history, g);
  }

 private:
  // Is a number of this lane's softmax so small that products of such numbers vanish?
  bool HasTiny(const U* softmax, int lane) const {
    const RealOf<U> least = std::sqrt(std::numeric_limits<RealOf<U>>::min());
    for (int i = 0; i < n_ * n_; ++i) {
      if (Real(softmax[i * kLanes + lane]) < least) return true;
    }
    return false;
  }

  // One lane without eps: every step subtracts the logarithm of a line's sum. Steps 0 and 1 of the history
  // are the softmax and its rows.
  void ForwardInLogarithms(const U* logits, U* history) const {
    thread_local std::vector<U> log;
    log.resize(static_cast<size_t>(n_ * n_));
    for (int i = 0; i < n_ * n_; ++i) log[static_cast<size_t>(i)] = logits[i * kLanes];
    for (int step = 0; step < 2 * iterations_; ++step, history += size()) {
      const bool columns = step % 2 == 0;
      for (int a = 0; a < n_; ++a) SubtractLogSum(columns ? n_ : 1, log.data() + (columns ? a : a * n_));
      for (int i = 0; i < n_ * n_; ++i) history[i * kLanes] = std::exp(log[static_cast<size_t>(i)]);
    }
  }

  // n numbers, `inner` apart: each less log sum exp of them all.
  void SubtractLogSum(int inner, U* line) const {
    RealOf<U> top = Real(line[0]);
    for (int b = 1; b < n_; ++b) top = std::max(top, Real(line[b * inner]));
    U sum = U(0);
    for (int b = 0; b < n_; ++b) sum += std::exp(line[b * inner] - U(top));
    const U log_sum = U(top) + std::log(sum);
    for (int b = 0; b < n_; ++b) line[b * inner] -= log_sum;
  }

  void NormaliseRows(const U* x, U* y) const { Normalise(n_, 1, x, y); }
  void NormaliseColumns(const U* x, U* y) const { Normalise(1, n_, x, y); }

  // Groups of n matrix elements, `outer` apart; within a group `inner` apart.
  void Normalise(int outer, int inner, const U* x, U* y) const {
    for (int a = 0; a < n_; ++a) {
      U sum[kLanes];
      for (int l = 0; l < kLanes; ++l) sum[l] = eps_;
      for (int b = 0; b < n_; ++b) {
        const U* v = x + (a * outer + b * inner) * kLanes;
        for (int l = 0; l < kLanes; ++l) sum[l] += v[l];
      }
      for (int l = 0; l < kLanes; ++l) sum[l] = U(1) / sum[l];
      for (int b = 0; b < n_; ++b) {
        const int64_t at = (a * outer + b * inner) * kLanes;
        for (int l = 0; l < kLanes; ++l) y[at + l] = x[at + l] * sum[l];
      }
    }
  }

  void Project(int outer, int inner, const U* y, U* g) const {
    for (int a = 0; a < n_; ++a) {
      U sum[kLanes] = {};
      for (int b = 0; b < n_; ++b) {
        const U* v = g + (a * outer + b * inner) * kLanes;
        for (int l = 0; l < kLanes; ++l) sum[l] += v[l];
      }
      for (int b = 0; b < n_; ++b) {
        const int64_t at = (a * outer + b * inner) * kLanes;
        for (int l = 0; l < kLanes; ++l) g[at + l] -= y[at + l] * sum[l];
      }
    }
  }

  void SoftmaxColumns(const U* logits, U* s) const {
    for (int k = 0; k < n_; ++k) {
      RealOf<U> top[kLanes];
      U sum[kLanes] = {};
      for (int l = 0; l < kLanes; ++l) top[l] = Real(logits[k * kLanes + l]);
      for (int j = 1; j < n_; ++j) {
        const U* v = logits + (j * n_ + k) * kLanes;
        for (int l = 0; l < kLanes; ++l) top[l] = std::max(top[l], Real(v[l]));
      }
      for (int j = 0; j < n_; ++j) {
        const int64_t at = (j * n_ + k) * kLanes;
        for (int l = 0; l < kLanes; ++l) {
          s[at + l] = std::exp(logits[at + l] - U(top[l]));
          sum[l] += s[at + l];
        }
      }
      for (int l = 0; l < kLanes; ++l) sum[l] = U(1) / sum[l];
      for (int j = 0; j < n_; ++j) {
        const int64_t at = (j * n_ + k) * kLanes;
        for (int l = 0; l < kLanes; ++l) s[at + l] *= sum[l];
      }
    }
  }

  int n_, iterations_;
  U eps_;
};

}  // namespace strata

#endif  // STRATA_RESIDUAL_SINKHORN_H_
