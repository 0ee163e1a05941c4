#ifndef STRATA_OPS_REF_NN_H_
#define STRATA_OPS_REF_NN_H_

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

// The scalar truth of the body's ops: one row, one pair or one head at a time, as the formula reads. T is
// double or float; the forward functions also take std::complex<double>, so that complex steps through them
// give exact derivatives. Outputs are assigned; in a Vjp, gradients of parameters shared by rows (dgain) are
// accumulated and all others assigned.
namespace strata::ref {

template <class T>
T Sigmoid(T z) {
  using std::exp;
  return T(1) / (T(1) + exp(-z));
}
// s = Sigmoid(z).
template <class T>
T SigmoidVjp(T s, T ds) {
  return ds * s * (T(1) - s);
}

// 1 / sqrt(sumsq / n + eps)
template <class T>
T Rstd(T sumsq, int64_t n, T eps) {
  using std::sqrt;
  return T(1) / sqrt(sumsq / T(static_cast<double>(n)) + eps);
}
// rstd = Rstd(sumsq, n, eps).
template <class T>
T RstdVjp(T rstd, int64_t n, T drstd) {
  return drstd * T(-0.5) * rstd * rstd * rstd / T(static_cast<double>(n));
}

// y[d] = x[d] * rstd * gain[d]
template <class T>
void RmsNorm(int64_t dim, const T* x, const T* gain, T eps, T* y) {
  T sumsq(0);
  for (int64_t d = 0; d < dim; ++d) sumsq += x[d] * x[d];
  const T rstd = Rstd(sumsq, dim, eps);
  for (int64_t d = 0; d < dim; ++d) y[d] = x[d] * rstd * gain[d];
}
template <class T>
void RmsNormVjp(int64_t dim, const T* x, const T* gain, T eps, const T* dy, T* dx, T* dgain) {
  T sumsq(0), drstd(0);
  for (int64_t d = 0; d < dim; ++d) {
    sumsq += x[d] * x[d];
    drstd += dy[d] * gain[d] * x[d];
  }
  const T rstd = Rstd(sumsq, dim, eps), dsumsq = RstdVjp(rstd, dim, drstd);
  for (int64_t d = 0; d < dim; ++d) {
    dx[d] = dy[d] * gain[d] * rstd + T(2) * dsumsq * x[d];
    dgain[d] += dy[d] * x[d] * rstd;
  }
}

inline constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2/pi)
inline constexpr double kGeluCubic = 0.044715;

// a/2 (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3)))
template <class T>
T Gelu(T a) {
  using std::tanh;
  return T(0.5) * a * (T(1) + tanh(T(kGeluScale) * (a + T(kGeluCubic) * a * a * a)));
}
template <class T>
T GeluVjp(T a, T dy) {
  using std::tanh;
  const T h = tanh(T(kGeluScale) * (a + T(kGeluCubic) * a * a * a));
  const T slope = T(kGeluScale) * (T(1) + T(3 * kGeluCubic) * a * a);
  return dy * T(0.5) * (T(1) + h + a * (T(1) - h * h) * slope);
}

// silu(a) * b,  silu(a) = a * sigmoid(a)
template <class T>
T SwiGlu(T a, T b) {
  return a * Sigmoid(a) * b;
}
template <class T>
void SwiGluVjp(T a, T b, T dy, T* da, T* db) {
  const T s = Sigmoid(a);
  *da = dy * b * (s + a * s * (T(1) - s));
  *db = dy * a * s;
}

// The largest real part: what softmax subtracts before it exponentiates.
template <class T>
auto Largest(int64_t size, const T* x) {
  auto largest = std::real(x[0]);
  for (int64_t i = 1; i < size; ++i) largest = std::max(largest, std::real(x[i]));
  return largest;
}

// p = softmax(z); p may be z.
template <class T>
void Softmax(int64_t size, const T* z, T* p) {
  using std::exp;
  const T shift = Largest(size, z);
  T sum(0);
  for (int64_t i = 0; i < size; ++i) sum += p[i] = exp(z[i] - shift);
  for (int64_t i = 0; i < size; ++i) p[i] /= sum;
}
// p = softmax(z); dz may be dp.
template <class T>
void SoftmaxVjp(int64_t size, const T* p, const T* dp, T* dz) {
  T dot(0);
  for (int64_t i = 0; i < size; ++i) dot += p[i] * dp[i];
  for (int64_t i = 0; i < size; ++i) dz[i] = p[i] * (dp[i] - dot);
}

// log sum exp(z) - z[target], in nats
template <class T>
T CrossEntropy(int64_t size, const T* z, int64_t target) {
  using std::exp, std::log;
  const T shift = Largest(size, z);
  T sum(0);
  for (int64_t i = 0; i < size; ++i) sum += exp(z[i] - shift);
  return log(sum) + shift - z[target];
}
template <class T>
void CrossEntropyVjp(int64_t size, const T* z, int64_t target, T dloss, T* dz) {
  Softmax(size, z, dz);
  for (int64_t i = 0; i < size; ++i) dz[i] = dloss * (dz[i] - T(i == target ? 1 : 0));
}

// (a, b) turned by the angle whose cosine and sine are c and s. The VJP is the turn back: Rotate(c, -s, ...).
template <class T>
void Rotate(T c, T s, T* a, T* b) {
  const T turned = *a * c - *b * s;
  *b = *a * s + *b * c;
  *a = turned;
}

// Weights of query row i: p[j] = softmax_j(scale <q_i, k_j>), j in [0, i].  q, k [length, dim].
template <class T>
void CausalWeights(int64_t i, int64_t dim, T scale, const T* q, const T* k, T* p) {
  for (int64_t j = 0; j <= i; ++j) {
    p[j] = T(0);
    for (int64_t d = 0; d < dim; ++d) p[j] += scale * q[i * dim + d] * k[j * dim + d];
  }
  Softmax(i + 1, p, p);
}

// Causal attention of one head: o_i = sum_{j <= i} p_ij v_j.  q, k, v, o [length, dim]; scores in full.
template <class T>
void Attention(int64_t length, int64_t dim, T scale, const T* q, const T* k, const T* v, T* o) {
  std::vector<T> p(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) {
    CausalWeights(i, dim, scale, q, k, p.data());
    for (int64_t d = 0; d < dim; ++d) {
      T sum(0);
      for (int64_t j = 0; j <= i; ++j) sum += p[static_cast<size_t>(j)] * v[j * dim + d];
      o[i * dim + d] = sum;
    }
  }
}
template <class T>
void AttentionVjp(int64_t length, int64_t dim, T scale, const T* q, const T* k, const T* v, const T* dout,
                  T* dq, T* dk, T* dv) {
  std::vector<T> p(static_cast<size_t>(length)), dp(p);
  for (T* gradient : {dq, dk, dv}) std::fill_n(gradient, length * dim, T(0));
  for (int64_t i = 0; i < length; ++i) {
    CausalWeights(i, dim, scale, q, k, p.data());
    for (int64_t j = 0; j <= i; ++j) {
      T& dpj = dp[static_cast<size_t>(j)] = T(0);
      for (int64_t d = 0; d < dim; ++d) {
        dpj += dout[i * dim + d] * v[j * dim + d];
        dv[j * dim + d] += p[static_cast<size_t>(j)] * dout[i * dim + d];
      }
    }
    SoftmaxVjp(i + 1, p.data(), dp.data(), dp.data());
    for (int64_t j = 0; j <= i; ++j) {
      for (int64_t d = 0; d < dim; ++d) {
        dq[i * dim + d] += scale * dp[static_cast<size_t>(j)] * k[j * dim + d];
        dk[j * dim + d] += scale * dp[static_cast<size_t>(j)] * q[i * dim + d];
      }
    }
  }
}

}  // namespace strata::ref

#endif  // STRATA_OPS_REF_NN_H_
