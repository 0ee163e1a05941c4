// Extreme numbers: huge, tiny and constant slots, extreme logits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "residual/row_norm.h"
#include "residual/sinkhorn.h"
#include "residual/testing.h"

namespace strata {
namespace {

template <class T>
void CheckSinkhorn(int n, double eps, const std::vector<double>& logits) {
  constexpr int kLanes = Sinkhorn<T>::kLanes;
  const Sinkhorn<T> sinkhorn(n, 20, eps);
  std::vector<T> in(static_cast<size_t>(sinkhorn.size())),
      history(static_cast<size_t>(sinkhorn.history_size()));
  std::vector<T> g(in.size());
  Random random(1);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<T>(logits[i / kLanes]);
  for (T& v : g) v = static_cast<T>(random.Normal());
  sinkhorn.Forward(in.data(), history.data());
  const T* result = sinkhorn.Result(history.data());
  for (int j = 0; j < n; ++j) {
    double row = 0;
    for (int k = 0; k < n; ++k) {
      const double v = static_cast<double>(result[(j * n + k) * kLanes]);
      EXPECT_TRUE(std::isfinite(v) && v >= 0);
      EXPECT_EQ(result[(j * n + k) * kLanes], result[(j * n + k) * kLanes + kLanes - 1]) << "lanes differ";
      row += v;
    }
    EXPECT_NEAR(row, eps == 0 ? 1 : 1 / (1 + eps), eps == 0 ? 2e-7 : 3e-6) << "row " << j;
  }
  sinkhorn.Vjp(history.data(), g.data());
  for (const T v : g) EXPECT_TRUE(std::isfinite(v) && std::abs(v) < 1e3) << v;
}

TEST(Extremes, SinkhornStaysFiniteWithRowsOfOneForwardAndBackward) {
  for (const int n : {1, 2, 3, 4, 5, 8}) {
    const auto size = static_cast<size_t>(n * n);
    std::vector<std::vector<double>> cases;
    for (const double scale : {1.0, 4.0, 50.0}) {
      cases.push_back(RandomNumbers(n * n, scale, static_cast<uint64_t>(n)));
    }
    for (const double at : {90.0, -90.0, 200.0, -200.0}) {
      std::vector<double> row(size, 0.0), column(size, 0.0), diagonal(size, -at);
      for (int i = 0; i < n; ++i) {
        row[static_cast<size_t>(i)] = at;
        column[static_cast<size_t>(i * n)] = at;
        diagonal[static_cast<size_t>(i * n + i)] = at;
      }
      for (const auto& logits : {row, column, diagonal}) cases.push_back(logits);
    }
    std::vector<std::vector<double>> vanishing;  // numbers whose exponentials are no doubles
    for (const double at : {-700.0, -800.0, -2400.0, 2400.0}) {
      std::vector<double> row(size, 0.0);
      for (int k = 0; k < n; ++k) row[static_cast<size_t>(k)] = at * (k + 2) / (n + 1);
      vanishing.push_back(row);
    }
    for (const auto& logits : vanishing) CheckSinkhorn<double>(n, 0, logits);
    for (const auto& logits : cases) {
      SCOPED_TRACE(n);
      CheckSinkhorn<float>(n, 1e-6, logits);
      CheckSinkhorn<double>(n, 1e-6, logits);
      CheckSinkhorn<double>(n, 0, logits);  // what the paper's form runs, for float models too
    }
  }
}

TEST(Extremes, RowsOfThePapersFormSumToOneInFloat) {
  Toy<float> toy("mhc:form=paper", 3, 8);
  toy.Randomise(12);
  for (float& v : toy.parameters) v *= 4;
  Walker<float> walker(*toy.mechanism, Walker<float>::Mode::kTrain);
  Forward(toy, &walker, Cast<float>(RandomNumbers(100 * 8, 1, 13)));
  for (int s = 0; s < 3; ++s) {
    const Slice<float>& keep = walker.coefs(s).keep;
    ASSERT_EQ(keep.size(), 100 * 16);
    for (int64_t i = 0; i < keep.size(); i += 4) {
      EXPECT_NEAR(double{keep[i]} + double{keep[i + 1]} + double{keep[i + 2]} + double{keep[i + 3]}, 1, 2e-7);
    }
    for (const float write :
         Numbers<float>(walker.coefs(s).write.data(), walker.coefs(s).write.data() + 400)) {
      EXPECT_TRUE(write >= 0 && write <= 2);
    }
  }
}

bool Finite(const Numbers<float>& numbers) {
  for (const float v : numbers) {
    if (!std::isfinite(v)) return false;
  }
  return true;
}

// Sources up to the largest floats: squares overflow from about 1.8e19 on.
TEST(Extremes, HugeAndZeroSourcesKeepAttnResFiniteAndExact) {
  constexpr int64_t kDim = 16;
  for (const double size : {0.0, 1e-30, 1e10, 1e19, 3e30, 3e38}) {
    Toy<float> toy("attnres:block=1", 2, kDim);
    Toy<double> exact("attnres:block=1", 2, kDim);
    exact.Randomise(14);
    exact.parameters = RandomNumbers(static_cast<int64_t>(exact.parameters.size()), 0.3, 14);
    toy.parameters = Cast<float>(exact.parameters);
    exact.parameters = Numbers<double>(toy.parameters.begin(), toy.parameters.end());
    Numbers<float> huge(kDim), one(kDim, 1.0f);
    for (size_t d = 0; d < huge.size(); ++d) huge[d] = static_cast<float>(size * (d % 3 == 0 ? 1 : -0.5));
    const auto run = [&]<class T>(const Toy<T>& t, Walker<T>* walker) {
      const Numbers<T> e(one.begin(), one.end()), u(huge.begin(), huge.end());
      walker->Begin(t.parameters.data(), e.data(), 1);
      const T* x = nullptr;
      for (int s = 0; s < 2; ++s) {
        std::copy(u.begin(), u.end(), walker->update());
        x = walker->Next();
      }
      return Numbers<T>(x, x + kDim);
    };
    Walker<float> walker(*toy.mechanism, Walker<float>::Mode::kTrain);
    Walker<double> reference(*exact.mechanism, Walker<double>::Mode::kTrain);
    const auto x = run(toy, &walker);
    const auto expected = run(exact, &reference);
    for (size_t d = 0; d < kDim; ++d) EXPECT_NEAR(x[d], expected[d], 1e-5 * std::max(size, 1.0)) << size;
    Numbers<float> dp(toy.parameters.size()), dx(kDim, 0.01f);
    const float* du = walker.BeginBack(dx.data(), dp.data());
    for (int s = 0; s < 2; ++s) {
      EXPECT_TRUE(Finite({du, du + kDim})) << size;
      du = walker.Back(dx.data());
    }
    EXPECT_TRUE(Finite({du, du + kDim})) << size;
    EXPECT_TRUE(Finite(dp)) << size;
  }
}

TEST(Extremes, HugeAndZeroStatesKeepManifoldsFinite) {
  for (const std::string spec : {"mhc:collapse=head", "mhc:form=paper", "mhc-lite:collapse=head", "krom"}) {
    for (const float size : {0.0f, 1e-30f, 1e10f, 1e19f, 1e30f, 1e36f}) {
      Toy<float> toy(spec, 2, 8);
      toy.Randomise(15);
      Walker<float> walker(*toy.mechanism, Walker<float>::Mode::kTrain);
      const auto x = Forward(toy, &walker, Numbers<float>(8, size));
      for (const auto& of_site : x) EXPECT_TRUE(Finite(of_site)) << spec << " " << size;
      const auto g = Backward(toy, &walker, x, Numbers<float>(8, 0.01f));
      EXPECT_TRUE(Finite(g.embedding)) << spec << " " << size;
      EXPECT_TRUE(Finite(g.parameters)) << spec << " " << size;
    }
  }
}

// Rows of one number (layer: no variance), tiny and huge ones, and rows whose mean is far larger than what
// they differ by.
TEST(Extremes, HugeTinyAndConstantSlotsKeepHcFinite) {
  for (const std::string spec :
       {"hc", "hc:norm=rms,collapse=head", "hc:eps=0", "hc:norm=rms,eps=0,tanh=false"}) {
    for (const float size : {0.0f, 1e-38f, 1e-30f, 1e10f, 1e19f, 1e30f, 1e36f}) {
      for (const float other : {1.0f, -0.5f}) {
        // Without eps a row without variance has no gradient.
        if (spec == "hc:eps=0" && other == 1.0f && size > 0) continue;
        Toy<float> toy(spec, 2, 8);
        toy.Randomise(25);
        for (float& v : toy.parameters) v *= 0.3f;
        Walker<float> walker(*toy.mechanism, Walker<float>::Mode::kTrain);
        Numbers<float> e(8, size);
        for (size_t d = 0; d < 8; d += 3) e[d] *= other;
        const auto x = Forward(toy, &walker, e);
        const auto g = Backward(toy, &walker, x, Numbers<float>(8, size > 1 ? 0.01f / size : 0.01f));
        for (const auto& of_site : x) EXPECT_TRUE(Finite(of_site)) << spec << " " << size;
        EXPECT_TRUE(Finite(g.embedding)) << spec << " " << size;
        EXPECT_TRUE(Finite(g.parameters)) << spec << " " << size;
      }
    }
  }
}

// By hand: the softmax over `to` of each column is (1, e^-700) and (1, e^-760); the second row divided by its
// sum e^-700 + e^-760 is (1, e^-60).
TEST(Extremes, SinkhornOfThePaperHasNoEps) {
  const Sinkhorn<double> sinkhorn(2, 1, 0);
  constexpr int kLanes = Sinkhorn<double>::kLanes;
  std::vector<double> logits(static_cast<size_t>(sinkhorn.size()), 0.0),
      history(static_cast<size_t>(sinkhorn.history_size()));
  logits[2 * kLanes] = -700;
  logits[3 * kLanes] = -760;
  sinkhorn.Forward(logits.data(), history.data());
  const double* keep = sinkhorn.Result(history.data());
  EXPECT_DOUBLE_EQ(keep[0], 0.5);
  EXPECT_DOUBLE_EQ(keep[2 * kLanes], 1);
  EXPECT_NEAR(keep[3 * kLanes] / std::exp(-60.0), 1, 1e-12);
  EXPECT_DOUBLE_EQ(keep[1], 0.5) << "the neighbouring lane";
}

// Without eps a norm does not depend on the unit: attnres, gated, review and hc on numbers whose squares are
// no doubles decide as on the same numbers scaled up.
TEST(Extremes, NormsWithoutEpsDoNotDependOnTheUnit) {
  for (const char* spec : {"attnres:eps=0", "attnres:eps=0,heads=2", "gated:eps=0", "review:eps=0",
                           "hc:norm=rms,eps=0", "mhc:norm-eps=0", "attnres:query=input,eps=0"}) {
    SCOPED_TRACE(spec);
    std::vector<std::vector<double>> reads;
    for (const double unit : {1.0, 1e-150, 1e-170, 1e-300}) {
      const auto mechanism = MakeMechanism<double>(ParseResidual(spec), 2, 4);
      int64_t count = 0;
      for (const Parameter& parameter : mechanism->Parameters()) count += parameter.size();
      const std::vector<double> p = RandomNumbers(count, 0.5, 3);
      const std::vector<double> e = RandomNumbers(12, unit, 4), u = RandomNumbers(12, unit, 5);
      Walker<double> walker(*mechanism, Walker<double>::Mode::kTrain);
      walker.Begin(p.data(), e.data(), 3);
      for (int site = 0; site < 2; ++site) {
        std::copy(u.begin(), u.end(), walker.update());
        walker.Next();
      }
      reads.emplace_back();
      for (int site = 0; site <= 2; ++site) {
        const Coefs<double> coefs = walker.coefs(site);
        for (const Slice<double>* b : {&coefs.read, &coefs.keep, &coefs.write}) {
          // The gate of `gated` stands in its read beside 1 / rms.
          const double scale = std::string(spec).rfind("gated", 0) == 0 && b == &coefs.read ? unit : 1;
          for (int64_t i = 0; i < b->size(); ++i) reads.back().push_back((*b)[i] * scale);
        }
      }
    }
    for (size_t unit = 1; unit < reads.size(); ++unit) {
      ASSERT_EQ(reads[unit].size(), reads[0].size());
      for (size_t i = 0; i < reads[0].size(); ++i) EXPECT_NEAR(reads[unit][i], reads[0][i], 1e-12) << unit;
    }
  }
}

TEST(Extremes, LayerNormKeepsItsDigitsBesideALargeMeanAndInHugeRows) {
  const RowNorm<float> norm(8, true, 1e-5);
  const RowNorm<double> wide(8, true, 1e-5);
  const float pattern[] = {1, -1, 2, -2, 0.5f, -0.5f, 3, -3};
  float out[8], expected[8];
  norm.Apply(pattern, expected);
  Numbers<float> row(8);
  for (size_t d = 0; d < 8; ++d) row[d] = pattern[d] + 65536;
  norm.Apply(row.data(), out);
  for (size_t d = 0; d < 8; ++d) EXPECT_NEAR(out[d], expected[d], 1e-6);
  for (size_t d = 0; d < 8; ++d) row[d] = pattern[d] * 1e38f;
  norm.Apply(row.data(), out);
  for (size_t d = 0; d < 8; ++d) EXPECT_NEAR(out[d], expected[d], 1e-5);
  Numbers<double> huge(8), wide_out(8);
  for (size_t d = 0; d < 8; ++d) huge[d] = pattern[d] * 5e307;
  wide.Apply(huge.data(), wide_out.data());
  for (size_t d = 0; d < 8; ++d) EXPECT_NEAR(wide_out[d], expected[d], 1e-5);
  std::fill(row.begin(), row.end(), 1234.567f);
  norm.Apply(row.data(), out);
  for (const float v : out) EXPECT_EQ(v, 0);
}

TEST(Extremes, ExtremeLogitsKeepManifoldsFiniteForwardAndBackward) {
  for (const std::string spec :
       {"mhc", "mhc:form=paper", "mhc-lite", "mhc-lite:slots=5", "krom", "krom:slots=32"}) {
    for (const float size : {50.0f, 90.0f, -90.0f, 200.0f, -200.0f, -1e4f, 1e4f}) {
      Toy<float> toy(spec, 3, 8);
      toy.Randomise(20);
      size_t at = 0;
      for (const Parameter& p : toy.mechanism->Parameters()) {
        const bool bias = p.name.find("bias") != std::string::npos;
        for (int64_t i = 0; i < p.size(); ++i, ++at) {
          // 50: random ones of that size; else every third one.
          if (bias) toy.parameters[at] = size == 50.0f ? size * toy.parameters[at] : i % 3 == 0 ? size : 0;
        }
      }
      Walker<float> walker(*toy.mechanism, Walker<float>::Mode::kTrain);
      const auto x = Forward(toy, &walker, Cast<float>(RandomNumbers(5 * 8, 1, 21)));
      const auto g = Backward(toy, &walker, x, Numbers<float>(5 * 8, 0.5f));
      for (const auto& of_site : x) EXPECT_TRUE(Finite(of_site)) << spec << " " << size;
      EXPECT_TRUE(Finite(g.embedding)) << spec << " " << size;
      EXPECT_TRUE(Finite(g.parameters)) << spec << " " << size;
    }
  }
}

TEST(Extremes, HugeAndZeroStatesKeepGatedFiniteForwardAndBackward) {
  for (const float size : {0.0f, 1e-30f, 1e19f, 1e30f, 1e37f}) {
    Toy<float> toy("gated:slots=2,rank=3", 2, 8);
    toy.Randomise(15);
    Walker<float> walker(*toy.mechanism, Walker<float>::Mode::kTrain);
    Numbers<float> e(8);
    for (size_t d = 0; d < 8; ++d) e[d] = size * (d % 3 == 0 ? 1 : -0.5f);
    const auto x = Forward(toy, &walker, e);
    for (const auto& of_site : x) EXPECT_TRUE(Finite(of_site)) << size;
    const auto g = Backward(toy, &walker, x, Numbers<float>(8, 0.1f));
    EXPECT_TRUE(Finite(g.parameters)) << size;
    EXPECT_TRUE(Finite(g.embedding)) << size;
  }
}

TEST(Extremes, HugeScoresWithoutKeyNormStayFinite) {
  for (const float size : {1e19f, 3e30f, 3e38f}) {
    Toy<float> toy("attnres:block=1,key-norm=false", 2, 4);
    toy.Randomise(16);
    Walker<float> walker(*toy.mechanism, Walker<float>::Mode::kTrain);
    const auto x = Forward(toy, &walker, Numbers<float>(4, size));
    for (const auto& of_site : x) EXPECT_TRUE(Finite(of_site)) << size;
  }
}

}  // namespace
}  // namespace strata
