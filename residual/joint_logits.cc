#include "residual/joint_logits.h"

#include <array>
#include <cmath>
#include <complex>

#include "base/parallel.h"
#include "residual/decide.h"

namespace strata {
namespace {
constexpr int64_t kChunk = 64;  // tokens
}  // namespace

template <class T>
JointLogits<T>::JointLogits(int slots, int64_t dim, const std::vector<int>& groups, double eps)
    : slots_(slots), groups_(static_cast<int>(groups.size())), dim_(dim), eps_(eps) {
  for (int i = 0; i < groups_; ++i)
    group_.insert(group_.end(), static_cast<size_t>(groups[static_cast<size_t>(i)]), i);
}

template <class T>
std::vector<Parameter> JointLogits<T>::Parameters(const std::string& prefix, std::vector<double> bias,
                                                  const std::string& rows, const std::string& scales) const {
  const std::string shape = rows.substr(0, rows.find(',')) + "]";
  std::vector<Parameter> all;
  const auto add = [&](const char* name, int64_t out, int64_t in, Init init, bool decays, std::string about) {
    std::vector<int64_t> extents{out};
    if (in > 0) extents.push_back(in);
    all.push_back({prefix + name, std::move(extents), std::move(init), decays, std::move(about)});
  };
  add("projection.weight", outputs(), width(), {}, true, rows + "; columns slot-major");
  add("scale", groups_, 0, {Init::Kind::kConstant, 0.01, {}}, false, scales);
  add("bias", outputs(), 0, {Init::Kind::kValues, 0, std::move(bias)}, false, shape + " of the logits");
  return all;
}

template <class T>
void JointLogits<T>::Project(const T* p, const State<T>& s, int64_t begin, int64_t end, T* saved) const {
  static thread_local std::vector<T> dot, sq;
  const int n = slots_, m = outputs();
  dot.resize(static_cast<size_t>(kChunk * n * m));
  sq.resize(static_cast<size_t>(kChunk * n));
  std::array<const T*, kMostSlots> rows;
  for (int k = 0; k < n; ++k) rows[static_cast<size_t>(k)] = s.slots[static_cast<size_t>(k)] + begin * dim_;
  Sense({end - begin, dim_, n}, m, p, dim_, width(), rows.data(), dot.data(), sq.data());
  for (int64_t t = begin; t < end; ++t) {
    const T *of_dot = dot.data() + (t - begin) * n * m, *of_sq = sq.data() + (t - begin) * n;
    T* projection = saved + t * m;
    T& rstd = saved[s.tokens * m + t];
    T sum = T(0), checked = T(0);
    for (int k = 0; k < n; ++k) sum += of_sq[k];
    for (int i = 0; i < m; ++i) projection[i] = of_dot[i];
    for (int k = 1; k < n; ++k) {
      for (int i = 0; i < m; ++i) projection[i] += of_dot[k * m + i];
    }
    for (int i = 0; i < m; ++i) checked += projection[i];
    if (HoldsDigits(sum, width(), eps_) && std::isfinite(Real(checked))) {
      rstd = Rstd(sum, width(), eps_);
      for (int i = 0; i < m; ++i) projection[i] *= rstd;
    } else {
      for (int k = 0; k < n; ++k) rows[static_cast<size_t>(k)] = s.slots[static_cast<size_t>(k)] + t * dim_;
      rstd = SenseScaled(n, dim_, m, p, dim_, width(), rows.data(), eps_, projection);
    }
  }
}

template <class T>
void JointLogits<T>::Logits(const T* p, const T* projection, T* logits) const {
  for (int i = 0; i < outputs(); ++i) {
    logits[i] = p[scale() + group_[static_cast<size_t>(i)]] * projection[i] + p[bias() + i];
  }
}

// With y = projection:  dbias = g;  dscale = g y;  ddot = g scale / rms;
// dsq = -(sum g scale y) / (2 n dim rms^2).  g becomes ddot; behind it dsq.
template <class T>
void JointLogits<T>::Vjp(const T* p, const State<T>& s, const T* saved, T* g, const State<T>& ds,
                         T* dp) const {
  if constexpr (std::is_floating_point_v<T>) {
    const int m = outputs();
    const int64_t chunks = (s.tokens + kChunk - 1) / kChunk, numbers = m + groups_;
    static thread_local std::vector<double> sums;  // [chunks, numbers]: of bias and scale
    sums.assign(static_cast<size_t>(chunks * numbers), 0.0);
    double* all_sums = sums.data();
    T* dsq = g + s.tokens * m;
    ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
      double *dbias = all_sums + begin / kChunk * numbers, *dscale = dbias + m;
      for (int64_t t = begin; t < end; ++t) {
        const T *y = saved + t * m, rstd = saved[s.tokens * m + t];
        T *of_token = g + t * m, along = 0;
        for (int i = 0; i < m; ++i) {
          const int group = group_[static_cast<size_t>(i)];
          dbias[i] += double{of_token[i]};
          dscale[group] += double{of_token[i]} * double{y[i]};
          const T scaled = of_token[i] * p[scale() + group];
          along += scaled * y[i];
          of_token[i] = scaled * rstd;
        }
        dsq[t] = T(-0.5) * along * rstd * rstd / static_cast<T>(width());
      }
    });
    for (int64_t c = 0; c < chunks; ++c) {
      const double* of_chunk = all_sums + c * numbers;
      for (int i = 0; i < m; ++i) dp[bias() + i] += static_cast<T>(of_chunk[i]);
      for (int i = 0; i < groups_; ++i) dp[scale() + i] += static_cast<T>(of_chunk[m + i]);
    }
    // ddot and dsq are the same for all slots.
    for (int k = 0; k < slots_; ++k) {
      const auto at = static_cast<size_t>(k);
      SenseVjp({s.tokens, dim_, 1}, m, p + k * dim_, dim_, width(), &s.slots[at], g, dsq, &ds.slots[at],
               dp + k * dim_);
    }
  }
}

template <class T>
std::vector<Intermediate> JointLogits<T>::Inside(const T* p, int64_t tokens, const T* saved) const {
  const int64_t m = outputs();
  Intermediate logits{"logits", {m}, {}}, projection{"projection", {m}, {}};
  std::vector<T> of_token(static_cast<size_t>(m));
  for (int64_t t = 0; t < tokens; ++t) {
    Logits(p, saved + t * m, of_token.data());
    for (int64_t i = 0; i < m; ++i) {
      logits.values.push_back(static_cast<double>(Real(of_token[static_cast<size_t>(i)])));
      projection.values.push_back(static_cast<double>(Real(saved[t * m + i])));
    }
  }
  return {logits, projection};
}

template class JointLogits<float>;
template class JointLogits<double>;
template class JointLogits<std::complex<double>>;

}  // namespace strata
