// Laws of equal bits: results do not depend on how tokens are grouped, on threads, on keeping values for a
// backward pass or on what ran before; and memory is what was announced.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/parallel.h"
#include "residual/testing.h"

namespace strata {
namespace {

constexpr int kSites = 7;
constexpr int64_t kTokens = 150;      // more than two chunks of any decider
constexpr int64_t kManyGroups = 300;  // channels of which a seam handles few tokens at a time
using Mode = Walker<float>::Mode;
using Values = std::vector<Numbers<float>>;

struct Case {
  Case(const std::string& spec_, int64_t dim_) : spec(spec_), dim(dim_), toy(spec_, kSites, dim_) {
    toy.Randomise(static_cast<uint64_t>(dim_));
    e = Cast<float>(RandomNumbers(kTokens * dim, 1, 8));
    cotangent = Cast<float>(RandomNumbers(kTokens * dim, 1, 9));
  }
  Numbers<float> Rows(const Numbers<float>& all, const std::vector<int64_t>& order) const {
    Numbers<float> rows;
    for (const int64_t t : order) rows.insert(rows.end(), all.begin() + t * dim, all.begin() + (t + 1) * dim);
    return rows;
  }
  std::string spec;
  int64_t dim;
  Toy<float> toy;
  Numbers<float> e, cotangent;
};

std::vector<int64_t> Range(int64_t begin, int64_t end) {
  std::vector<int64_t> range(static_cast<size_t>(end - begin));
  std::iota(range.begin(), range.end(), begin);
  return range;
}

template <class F>
void ForEachCase(F&& f, const std::vector<int64_t>& dims = {1, 17, 70}) {
  SetThreads(1);
  for (const std::string& spec : ConformanceSpecs()) {
    for (const int64_t dim : dims) {
      SCOPED_TRACE(fmt::format("{} dim {}", spec, dim));
      f(Case(spec, dim));
    }
  }
}

TEST(EqualBits, InferenceEqualsTrainingAndARepeatedPass) {
  ForEachCase([](const Case& c) {
    Walker<float> training(*c.toy.mechanism, Mode::kTrain), inference(*c.toy.mechanism, Mode::kInfer);
    const Values once = Forward(c.toy, &training, c.e);
    EXPECT_EQ(once, Forward(c.toy, &training, c.e));
    EXPECT_EQ(once, Forward(c.toy, &inference, c.e));
    EXPECT_EQ(once, Forward(c.toy, &inference, c.e));
  });
}

TEST(EqualBits, SplitShuffledAndSingleTokensEqualAllTokens) {
  ForEachCase(
      [](const Case& c) {
        Walker<float> walker(*c.toy.mechanism, Mode::kInfer);
        const Values all = Forward(c.toy, &walker, c.e);
        std::vector<std::vector<int64_t>> groups{Range(0, 5), Range(5, 6), Range(6, 77), Range(77, kTokens)};
        for (int64_t t = 0; t < 8; ++t) groups.push_back({t});
        std::vector<int64_t> shuffled = Range(0, kTokens);
        Random random(3);
        for (size_t i = shuffled.size(); i > 1; --i) std::swap(shuffled[i - 1], shuffled[random.Below(i)]);
        groups.push_back(shuffled);
        for (const auto& group : groups) {
          const Values part = Forward(c.toy, &walker, c.Rows(c.e, group));
          for (size_t s = 0; s <= kSites; ++s) EXPECT_EQ(part[s], c.Rows(all[s], group)) << "site " << s;
        }
      },
      {1, 17, 70, kManyGroups});
}

TEST(EqualBits, OneThreadEqualsTwoForwardAndBackward) {
  ForEachCase(
      [](const Case& c) {
        Walker<float> walker(*c.toy.mechanism, Mode::kTrain);
        const auto run = [&](int threads) {
          SetThreads(threads);
          const Values x = Forward(c.toy, &walker, c.e);
          return std::make_pair(x, Backward(c.toy, &walker, x, c.cotangent));
        };
        const auto [x1, g1] = run(1);
        const auto [x2, g2] = run(2);
        EXPECT_EQ(x1, x2);
        EXPECT_EQ(g1.embedding, g2.embedding);
        EXPECT_EQ(g1.parameters, g2.parameters);
      },
      {17, kManyGroups});
  SetThreads(1);
}

TEST(EqualBits, ABackwardPassCanBeRepeatedAndIsTokenLocal) {
  ForEachCase([](const Case& c) {
    Walker<float> walker(*c.toy.mechanism, Mode::kTrain);
    const Values x = Forward(c.toy, &walker, c.e);
    const auto once = Backward(c.toy, &walker, x, c.cotangent);
    const auto twice = Backward(c.toy, &walker, x, c.cotangent);
    EXPECT_EQ(once.embedding, twice.embedding);
    EXPECT_EQ(once.parameters, twice.parameters);
    const auto group = Range(3, 90);
    const Values part = Forward(c.toy, &walker, c.Rows(c.e, group));
    const auto g = Backward(c.toy, &walker, part, c.Rows(c.cotangent, group));
    EXPECT_EQ(g.embedding, c.Rows(once.embedding, group));
  });
}

TEST(Groups, OfASeamAddUpToTheGradientsOfTheirTokens) {
  constexpr int64_t dim = 600, tokens = 70, part = 10;
  for (const std::string& spec : ConformanceSpecs()) {
    SCOPED_TRACE(spec);
    Toy<double> toy(spec, 3, dim);
    toy.Randomise(4);
    const auto e = RandomNumbers(tokens * dim, 1, 5), cotangent = RandomNumbers(tokens * dim, 1, 6);
    Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kTrain);
    const auto all = Backward(toy, &walker, Forward(toy, &walker, e), cotangent);
    Numbers<double> sum(toy.parameters.size(), 0.0);
    for (int64_t t = 0; t < tokens; t += part) {
      const Numbers<double> rows(e.begin() + t * dim, e.begin() + (t + part) * dim),
          back(cotangent.begin() + t * dim, cotangent.begin() + (t + part) * dim);
      const auto g = Backward(toy, &walker, Forward(toy, &walker, rows), back);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += g.parameters[i];
      EXPECT_TRUE(std::equal(g.embedding.begin(), g.embedding.end(), all.embedding.begin() + t * dim));
    }
    for (size_t i = 0; i < sum.size(); ++i)
      ASSERT_NEAR(sum[i], all.parameters[i], 1e-10 * (1 + std::abs(sum[i]))) << i;
  }
}

TEST(Memory, IsWhatWasAnnouncedAndFlatOverSteps) {
  ForEachCase(
      [](const Case& c) {
        Walker<float> training(*c.toy.mechanism, Mode::kTrain), inference(*c.toy.mechanism, Mode::kInfer);
        const int64_t announced = Walker<float>::TrainingBytes(*c.toy.mechanism, kTokens);
        int64_t held = 0;
        for (int step = 0; step < 3; ++step) {
          const Values x = Forward(c.toy, &training, c.e);
          Backward(c.toy, &training, x, c.cotangent);
          EXPECT_EQ(training.bytes(), announced) << "step " << step;
          Forward(c.toy, &inference, c.e);
          if (step == 0) held = inference.bytes();
          EXPECT_EQ(inference.bytes(), held);
          Forward(c.toy, &training, c.Rows(c.e, Range(0, 10)));  // fewer tokens need no more
        }
        EXPECT_LT(held, announced);
      },
      {1, 17, 70, kManyGroups});
  const auto mechanism = MakeMechanism<float>(ParseResidual("mhc"), 4000, 1 << 30);
  EXPECT_THROW(Walker<float>::TrainingBytes(*mechanism, int64_t{1} << 30), Error);
}

TEST(Memory, ClosedSlotsAreNeverWrittenAndInputsStayAsTheyWere) {
  ForEachCase([](const Case& c) {
    Walker<float> walker(*c.toy.mechanism, Mode::kTrain);
    const Values x = Forward(c.toy, &walker, c.e);
    const auto at_head = walker.state(kSites).slots;
    const float* const e_copy = walker.state(0).slots[0];
    EXPECT_TRUE(std::equal(c.e.begin(), c.e.end(), e_copy));
    for (int s = 0; s < kSites; ++s) {
      const Rule rule = c.toy.mechanism->At(s);
      for (int k = 0; k < rule.slots; ++k) {
        const auto slot = static_cast<size_t>(k);
        EXPECT_EQ(walker.state(s).slots[slot] == walker.state(s + 1).slots[slot],
                  rule.append || k < rule.closed);
        if (k < rule.closed) {
          EXPECT_EQ(walker.state(s).slots[slot], at_head[slot]);
        }
      }
    }
  });
}

TEST(Memory, GradientsAreAddedInsideTheParametersOnly) {
  ForEachCase([](const Case& c) {
    constexpr float kCanary = 12345;
    const size_t size = c.toy.parameters.size();
    Walker<float> walker(*c.toy.mechanism, Mode::kTrain);
    const Values x = Forward(c.toy, &walker, c.e);
    const auto expected = Backward(c.toy, &walker, x, c.cotangent);
    Numbers<float> dp(size + 32, 0.0f), dx(c.e.size());
    std::fill_n(dp.begin(), 16, kCanary);
    std::fill_n(dp.end() - 16, 16, kCanary);
    Numbers<float> dw(c.toy.weights.size());
    const float* du = walker.BeginBack(c.cotangent.data(), dp.data() + 16);
    for (int s = kSites - 1; s >= 0; --s) {
      c.toy.SublayerVjp(s, kTokens, x[static_cast<size_t>(s)].data(), du, dx.data(), dw.data());
      du = walker.Back(dx.data());
    }
    EXPECT_TRUE(std::all_of(dp.begin(), dp.begin() + 16, [](float v) { return v == kCanary; }));
    EXPECT_TRUE(std::all_of(dp.end() - 16, dp.end(), [](float v) { return v == kCanary; }));
    EXPECT_TRUE(std::equal(expected.parameters.begin(), expected.parameters.end(), dp.begin() + 16));
  });
}

}  // namespace
}  // namespace strata
