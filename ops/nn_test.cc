// The body's float kernels against naive double formulas written here, and their VJPs against complex-step
// derivatives of the same formulas: Im f(x + ih) / h.
#include "ops/nn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <functional>
#include <vector>

#include "base/random.h"
#include "ops/attention.h"
#include "ops/matmul.h"
#include "ops/softmax.h"

namespace strata {
namespace {

using Complex = std::complex<double>;
using Doubles = std::vector<double>;
using Floats = std::vector<float>;
template <class T>
using Vec = std::vector<T>;

Floats RandomFloats(int64_t size, uint64_t seed) {
  Random random(seed);
  Floats v(static_cast<size_t>(size));
  for (float& x : v) x = static_cast<float>(random.Normal());
  return v;
}

// Gradient of <cotangent, f(x)> with respect to x by complex step.
template <class F>
Doubles ComplexStep(F&& f, const Floats& x, const Floats& cotangent) {
  Vec<Complex> z(x.begin(), x.end());
  Doubles gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    z[i] += Complex(0, 1e-30);
    const Vec<Complex> y = f(z);
    Complex sum = 0;
    for (size_t j = 0; j < y.size(); ++j) sum += static_cast<double>(cotangent[j]) * y[j];
    gradient[i] = sum.imag() / 1e-30;
    z[i] = static_cast<double>(x[i]);
  }
  return gradient;
}

void ExpectNear(const Floats& got, const Doubles& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double scale = 0;
  for (const double w : want) scale = std::max(scale, std::abs(w));
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * (scale + 1e-6)) << "at " << i;
}

template <class T>
Doubles Real(const Vec<T>& v) {
  Doubles r;
  for (const T& x : v) r.push_back(std::real(x));
  return r;
}

template <class T>
Vec<T> NaiveRmsNorm(int64_t dim, const Vec<T>& x, const Floats& gain, double eps) {
  Vec<T> y(x.size());
  for (size_t r = 0; r < x.size() / static_cast<size_t>(dim); ++r) {
    T sq = 0;
    for (int64_t i = 0; i < dim; ++i) sq += x[r * dim + i] * x[r * dim + i];
    for (int64_t i = 0; i < dim; ++i) {
      y[r * dim + i] =
          x[r * dim + i] / std::sqrt(sq / static_cast<double>(dim) + eps) * static_cast<double>(gain[i]);
    }
  }
  return y;
}

TEST(Nn, RmsNormIsItsFormulaAndItsVjpTheDerivative) {
  for (const int64_t dim : {1, 3, 16, 17, 64, 100}) {
    const int64_t rows = 5;
    const Floats x = RandomFloats(rows * dim, 1), gain = RandomFloats(dim, 2),
                 dy = RandomFloats(rows * dim, 3);
    Floats y(x.size()), rstd(rows), dx(x.size()), dgain(dim, 0.5f);
    RmsNorm(rows, dim, x.data(), gain.data(), 1e-5, y.data(), rstd.data());
    ExpectNear(y, NaiveRmsNorm(dim, Doubles(x.begin(), x.end()), gain, 1e-5), 1e-6);
    RmsNormVjp(rows, dim, x.data(), gain.data(), rstd.data(), dy.data(), dx.data(), dgain.data());
    const auto naive = [&](const Vec<Complex>& z) { return NaiveRmsNorm(dim, z, gain, 1e-5); };
    const Doubles want_dx = ComplexStep(naive, x, dy);
    for (size_t i = 0; i < dx.size(); ++i) {  // the terms that cancel have the size of rstd |gain| |dy|
      EXPECT_NEAR(dx[i], want_dx[i], 1e-5 * rstd[i / static_cast<size_t>(dim)]);
    }
    for (int64_t i = 0; i < dim; ++i) {
      double want = 0.5;  // accumulated
      for (int64_t r = 0; r < rows; ++r) want += double(dy[r * dim + i]) * x[r * dim + i] * rstd[r];
      EXPECT_NEAR(dgain[i], want, 1e-5);
    }
  }
}

template <class T>
Vec<T> NaiveGelu(const Vec<T>& a) {
  Vec<T> y;
  for (const T& v : a) {
    y.push_back(0.5 * v * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v))));
  }
  return y;
}

TEST(Nn, GeluIsTheTanhFormAndItsVjpTheDerivative) {
  const Floats a = RandomFloats(101, 4), dy = RandomFloats(101, 5);
  Floats y(a.size()), da(a.size());
  Gelu(101, a.data(), y.data());
  ExpectNear(y, NaiveGelu(Doubles(a.begin(), a.end())), 1e-6);
  GeluVjp(101, a.data(), dy.data(), da.data());
  ExpectNear(da, ComplexStep([](const Vec<Complex>& z) { return NaiveGelu(z); }, a, dy), 1e-6);
}

TEST(Nn, GeluIsFiniteFarOut) {
  const Floats a = {-100.0f, -1e4f, 100.0f, 1e4f};
  Floats y(4), da(4), dy(4, 1.0f);
  Gelu(4, a.data(), y.data());
  GeluVjp(4, a.data(), dy.data(), da.data());
  EXPECT_NEAR(y[0], 0.0f, 1e-30f);
  EXPECT_EQ(y[2], 100.0f);
  EXPECT_EQ(da[2], 1.0f);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isfinite(da[static_cast<size_t>(i)]));
}

template <class T>
Vec<T> NaiveSwiGlu(int64_t width, const Vec<T>& a) {
  Vec<T> y;
  for (size_t r = 0; r < a.size() / (2 * width); ++r) {
    for (int64_t i = 0; i < width; ++i) {
      const T g = a[2 * r * width + i];
      y.push_back(g / (1.0 + std::exp(-g)) * a[(2 * r + 1) * width + i]);
    }
  }
  return y;
}

TEST(Nn, SwiGluIsItsFormulaAndItsVjpTheDerivative) {
  for (const int64_t width : {1, 7, 16, 33}) {
    const Floats a = RandomFloats(3 * 2 * width, 6), dy = RandomFloats(3 * width, 7);
    Floats y(dy.size()), da(a.size());
    SwiGlu(3, width, a.data(), y.data());
    ExpectNear(y, NaiveSwiGlu(width, Doubles(a.begin(), a.end())), 1e-6);
    SwiGluVjp(3, width, a.data(), dy.data(), da.data());
    ExpectNear(da, ComplexStep([&](const Vec<Complex>& z) { return NaiveSwiGlu(width, z); }, a, dy), 1e-6);
  }
}

TEST(Nn, RopeTurnsPairsByPositionAndBack) {
  const RopeTable table(8, 8);
  const RopeDims dims{6, 3, 5, 2, 20};  // 2 sequences of 3 tokens that start at position 5, rows 20 wide
  const Floats x = RandomFloats(6 * 20, 8);
  Floats y = x;
  Rope(dims, table, Turn::kForward, y.data());
  for (int64_t r = 0; r < 6; ++r) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < 4; ++i) {
        const size_t at = static_cast<size_t>(r * 20 + h * 8 + i);
        const Complex turned = Complex(x[at], x[at + 4]) *
                               std::polar(1.0, double(5 + r % 3) * std::pow(10000.0, -2.0 * double(i) / 8.0));
        EXPECT_NEAR(y[at], turned.real(), 1e-6);
        EXPECT_NEAR(y[at + 4], turned.imag(), 1e-6);
      }
    }
    for (int64_t c = 16; c < 20; ++c)
      EXPECT_EQ(y[static_cast<size_t>(r * 20 + c)], x[static_cast<size_t>(r * 20 + c)]);
  }
  Rope(dims, table, Turn::kBack, y.data());
  ExpectNear(y, Doubles(x.begin(), x.end()), 1e-6);
}

TEST(Nn, CrossEntropyAndItsGradientSkipNegativeTargets) {
  const int64_t rows = 4, vocab = 37;
  const Floats logits = RandomFloats(rows * vocab, 9);
  const std::vector<int32_t> targets = {0, -1, 36, 5};
  Floats losses(rows), dlogits(logits.size());
  CrossEntropy(rows, vocab, logits.data(), targets.data(), 0.25f, losses.data(), dlogits.data());
  const auto naive = [&](const auto& z) {
    auto total = z;
    total.assign(1, 0.0);
    for (int64_t r = 0; r < rows; ++r) {
      if (targets[r] < 0) continue;
      auto sum = z[0] * 0.0;
      for (int64_t v = 0; v < vocab; ++v) sum += std::exp(z[r * vocab + v]);
      total[0] += std::log(sum) - z[r * vocab + targets[r]];
    }
    return total;
  };
  const double total = naive(Doubles(logits.begin(), logits.end()))[0];
  EXPECT_NEAR(losses[0] + losses[1] + losses[2] + losses[3], total, 1e-5);
  EXPECT_EQ(losses[1], 0.0f);
  ExpectNear(dlogits, ComplexStep([&](const Vec<Complex>& z) { return naive(z); }, logits, {0.25f}), 1e-6);
}

TEST(Nn, CrossEntropyIsFiniteForHugeLogits) {
  const Floats logits = {1e30f, -1e30f, 0.0f};
  const int32_t target = 0;
  Floats loss(1), dlogits(3);
  CrossEntropy(1, 3, logits.data(), &target, 1.0f, loss.data(), dlogits.data());
  EXPECT_EQ(loss[0], 0.0f);
  for (const float g : dlogits) EXPECT_EQ(g, 0.0f);
}

TEST(Nn, EmbeddingGathersAndItsVjpScatters) {
  const Floats table = RandomFloats(5 * 70, 10), dx = RandomFloats(3 * 70, 11);
  const std::vector<int32_t> tokens = {4, 1, 4};
  Floats x(dx.size()), dtable(table.size(), 0.0f);
  Embed(3, 70, table.data(), tokens.data(), x.data());
  EmbedVjp(3, 70, dx.data(), tokens.data(), dtable.data());
  for (size_t i = 0; i < 70; ++i) {
    EXPECT_EQ(x[70 + i], table[70 + i]);
    EXPECT_EQ(dtable[70 + i], dx[70 + i]);
    EXPECT_EQ(dtable[4 * 70 + i], dx[i] + dx[140 + i]);
    EXPECT_EQ(dtable[i], 0.0f);
  }
}

TEST(Nn, BFloat16RoundsToNearestEvenInVectorsAndAlone) {
  Floats x = RandomFloats(67, 12);
  x[0] = 1.00390625f;  // halfway: to even, 1.0
  x[1] = 1.01171875f;  // halfway: to even, 1.015625
  std::vector<BFloat16> y(x.size());
  Convert(67, x.data(), y.data());
  EXPECT_EQ(ToFloat(y[0]), 1.0f);
  EXPECT_EQ(ToFloat(y[1]), 1.015625f);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i].bits, FromFloat<BFloat16>(x[i]).bits);
    EXPECT_LE(std::abs(ToFloat(y[i]) - x[i]), std::abs(x[i]) / 256);
  }
}

TEST(Matmul, EveryOrientationAndAccumulationIsTheTripleLoop) {
  const int64_t m = 5, n = 7, k = 9;
  for (const Op op_a : {Op::kNone, Op::kTranspose}) {
    for (const Op op_b : {Op::kNone, Op::kTranspose}) {
      const int64_t lda = (op_a == Op::kNone ? k : m) + 2, ldb = (op_b == Op::kNone ? n : k) + 3;
      const Floats a = RandomFloats(20 * 20, 13), b = RandomFloats(20 * 20, 14);
      Floats c(static_cast<size_t>(m * n), 1.0f);
      Matmul<float, float>({m, n, k, lda, ldb, n, op_a, op_b}, a.data(), b.data(), c.data(), Into::kAdd);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double want = 1;
          for (int64_t l = 0; l < k; ++l) {
            want += double(a[static_cast<size_t>(op_a == Op::kNone ? i * lda + l : l * lda + i)]) *
                    b[static_cast<size_t>(op_b == Op::kNone ? l * ldb + j : j * ldb + l)];
          }
          EXPECT_NEAR(c[static_cast<size_t>(i * n + j)], want, 1e-5);
        }
      }
    }
  }
}

TEST(Matmul, BFloat16StorageGivesTheProductsOfTheRoundedNumbers) {
  const int64_t m = 8000, n = 5, k = 11;  // enough rows that every thread gets some
  for (const Op op_a : {Op::kNone, Op::kTranspose}) {
    for (const Op op_b : {Op::kNone, Op::kTranspose}) {
      const int64_t lda = (op_a == Op::kNone ? k : m) + 2, ldb = (op_b == Op::kNone ? n : k) + 3;
      const Floats a = RandomFloats(8002 * 13, 20), b = RandomFloats(8002 * 13, 21);
      std::vector<BFloat16> ra(a.size()), rb(b.size()),
          rounded(static_cast<size_t>(m * (n + 4)), BFloat16{7});
      Convert(8002 * 13, a.data(), ra.data());
      Convert(8002 * 13, b.data(), rb.data());
      Floats c(static_cast<size_t>(m * n), 1.0f);
      Matmul<BFloat16, float>({m, n, k, lda, ldb, n, op_a, op_b}, ra.data(), rb.data(), c.data(), Into::kAdd);
      Matmul<BFloat16, BFloat16>({m, n, k, lda, ldb, n + 4, op_a, op_b}, ra.data(), rb.data(),
                                 rounded.data());
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double want = 0;
          for (int64_t l = 0; l < k; ++l) {
            want += double(ToFloat(ra[static_cast<size_t>(op_a == Op::kNone ? i * lda + l : l * lda + i)])) *
                    ToFloat(rb[static_cast<size_t>(op_b == Op::kNone ? l * ldb + j : j * ldb + l)]);
          }
          EXPECT_NEAR(c[static_cast<size_t>(i * n + j)], want + 1, 1e-5);
          EXPECT_NEAR(ToFloat(rounded[static_cast<size_t>(i * (n + 4) + j)]), want,
                      std::abs(want) / 128 + 1e-5);
        }
        for (int64_t j = n; j < n + 4; ++j) EXPECT_EQ(rounded[static_cast<size_t>(i * (n + 4) + j)].bits, 7);
      }
    }
  }
}

// out [length, heads * w] of one sequence from [q | k | v] rows.
template <class T>
Vec<T> NaiveAttention(int64_t length, int64_t heads, int64_t kv, int64_t w, const Vec<T>& qkv) {
  const int64_t width = (heads + 2 * kv) * w;
  Vec<T> out(static_cast<size_t>(length * heads * w), T(0));
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t g = h / (heads / kv);
    for (int64_t i = 0; i < length; ++i) {
      Vec<T> p;
      T sum = 0;
      for (int64_t j = 0; j <= i; ++j) {
        T s = 0;
        for (int64_t c = 0; c < w; ++c)
          s += qkv[i * width + h * w + c] * qkv[j * width + (heads + g) * w + c];
        p.push_back(std::exp(s / std::sqrt(double(w))));
        sum += p.back();
      }
      for (int64_t j = 0; j <= i; ++j) {
        for (int64_t c = 0; c < w; ++c) {
          out[i * heads * w + h * w + c] += p[j] / sum * qkv[j * width + (heads + kv + g) * w + c];
        }
      }
    }
  }
  return out;
}

TEST(Attention, GroupedCausalFormAndVjpAcrossTiles) {
  struct Case {
    int64_t length, heads, kv, w;
  };
  for (const Case c : {Case{1, 1, 1, 2}, Case{7, 4, 2, 4}, Case{5, 3, 1, 6}, Case{131, 2, 1, 2}}) {
    const int64_t width = (c.heads + 2 * c.kv) * c.w, inner = c.heads * c.w;
    const Floats qkv = RandomFloats(c.length * width, 15), dout = RandomFloats(c.length * inner, 16);
    const AttentionDims dims{
        1, c.length, 0, c.heads, c.kv, c.w, {width, c.w, 0}, {width, c.w, 0}, {inner, c.w, 0}};
    Floats out(dout.size()), lse(static_cast<size_t>(c.heads * c.length)), d(qkv.size());
    const int64_t key = inner, value = inner + c.kv * c.w;
    Attention(dims, qkv.data(), qkv.data() + key, qkv.data() + value, out.data(), lse.data());
    ExpectNear(out, NaiveAttention(c.length, c.heads, c.kv, c.w, Doubles(qkv.begin(), qkv.end())), 2e-6);
    AttentionVjp(dims, qkv.data(), qkv.data() + key, qkv.data() + value, out.data(), lse.data(), dout.data(),
                 d.data(), d.data() + key, d.data() + value);
    if (c.length > 100) continue;  // the forward covers the second tile; its VJP is compared below
    const auto naive = [&](const Vec<Complex>& z) { return NaiveAttention(c.length, c.heads, c.kv, c.w, z); };
    ExpectNear(d, ComplexStep(naive, qkv, dout), 1e-5);
  }
}

TEST(Attention, VjpAcrossTilesMatchesDifferences) {
  const int64_t length = 140, w = 4;
  Floats qkv = RandomFloats(length * 3 * w, 17);
  const Floats dout = RandomFloats(length * w, 18);
  const AttentionDims dims{1, length, 0, 1, 1, w, {3 * w, w, 0}, {3 * w, w, 0}, {w, w, 0}};
  Floats out(dout.size()), lse(length), d(qkv.size());
  Attention(dims, qkv.data(), qkv.data() + w, qkv.data() + 2 * w, out.data(), lse.data());
  AttentionVjp(dims, qkv.data(), qkv.data() + w, qkv.data() + 2 * w, out.data(), lse.data(), dout.data(),
               d.data(), d.data() + w, d.data() + 2 * w);
  for (const size_t at : {0u, 5u, 10u, 130u * 12 + 1, 130u * 12 + 6, 20u * 12 + 9}) {
    Vec<Complex> z(qkv.begin(), qkv.end());
    z[at] += Complex(0, 1e-30);
    const Vec<Complex> y = NaiveAttention(length, 1, 1, w, z);
    Complex sum = 0;
    for (size_t j = 0; j < y.size(); ++j) sum += double(dout[j]) * y[j];
    EXPECT_NEAR(d[at], sum.imag() / 1e-30, 2e-5) << at;
  }
}

TEST(Attention, QueriesAfterAPastSeeAllOfIt) {
  const int64_t length = 9, w = 4;
  const Floats qkv = RandomFloats(length * 3 * w, 19);
  Floats whole(length * w), part(length * w), lse(length);
  AttentionDims dims{1, length, 0, 1, 1, w, {3 * w, w, 0}, {3 * w, w, 0}, {w, w, 0}};
  Attention(dims, qkv.data(), qkv.data() + w, qkv.data() + 2 * w, whole.data(), lse.data());
  dims.length = 4;
  dims.past = 5;
  Attention(dims, qkv.data() + 5 * 3 * w, qkv.data() + w, qkv.data() + 2 * w, part.data(), lse.data());
  for (size_t i = 0; i < 4 * w; ++i) EXPECT_NEAR(part[i], whole[5 * w + i], 1e-6);
}

}  // namespace
}  // namespace strata
