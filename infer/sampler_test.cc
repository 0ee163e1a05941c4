#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"

namespace strata {
namespace {

constexpr float kLogits[] = {0.0f, 2.0f, 1.0f, 2.0f, -1.0f};
constexpr int64_t kVocab = 5;

std::map<int32_t, int> Draw(const SamplerOptions& options, int times) {
  Sampler sampler(options);
  std::map<int32_t, int> counts;
  for (int i = 0; i < times; ++i) ++counts[sampler.Next(kLogits, kVocab)];
  return counts;
}

TEST(Sampler, ZeroTemperatureIsGreedyAndTiesGoToTheSmallerId) {
  EXPECT_EQ(Draw({0.0, 0, 1.0, 1}, 20), (std::map<int32_t, int>{{1, 20}}));
}

TEST(Sampler, DrawsInProportionToTheSoftmax) {
  const int times = 20000;
  std::map<int32_t, int> counts = Draw({2.0, 0, 1.0, 3}, times);
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(static_cast<double>(logit) / 2);
  for (int32_t i = 0; i < kVocab; ++i) {
    const double p = std::exp(static_cast<double>(kLogits[i]) / 2) / sum;
    EXPECT_NEAR(counts[i] / static_cast<double>(times), p, 4 * std::sqrt(p * (1 - p) / times)) << i;
  }
}

TEST(Sampler, TopKKeepsTheKLikeliest) {
  const std::map<int32_t, int> counts = Draw({5.0, 3, 1.0, 4}, 2000);
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_TRUE(counts.contains(1) && counts.contains(2) && counts.contains(3));
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  // Probabilities at temperature 1: ids 1 and 3 have 0.392 each, id 2 has 0.144, id 0 has 0.053.
  EXPECT_EQ(Draw({1.0, 0, 0.3, 5}, 500).size(), 1u);
  EXPECT_EQ(Draw({1.0, 0, 0.7, 5}, 500).size(), 2u);
  EXPECT_EQ(Draw({1.0, 0, 0.9, 5}, 2000).size(), 3u);
  EXPECT_EQ(Draw({1.0, 0, 1.0, 5}, 5000).size(), 5u);
}

TEST(Sampler, EqualSeedsDrawEqually) {
  Sampler a({1.0, 0, 1.0, 8}), b({1.0, 0, 1.0, 8}), c({1.0, 0, 1.0, 9});
  int differences = 0;
  for (int i = 0; i < 100; ++i) {
    const int32_t drawn = a.Next(kLogits, kVocab);
    ASSERT_EQ(drawn, b.Next(kLogits, kVocab));
    differences += drawn != c.Next(kLogits, kVocab);
  }
  EXPECT_GT(differences, 10);
}

TEST(Sampler, RefusesWhatMakesNoSense) {
  EXPECT_THROW(Sampler({-1.0, 0, 1.0, 1}), Error);
  EXPECT_THROW(Sampler({1.0, -1, 1.0, 1}), Error);
  EXPECT_THROW(Sampler({1.0, 0, 0.0, 1}), Error);
  EXPECT_THROW(Sampler({1.0, 0, 1.5, 1}), Error);
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), 1.0f};
  EXPECT_EQ(Sampler({1.0, 0, 1.0, 1}).Next(bad, 2), 1);
  EXPECT_THROW(Sampler({1.0, 0, 1.0, 1}).Next(bad, 1), Error);
}

}  // namespace
}  // namespace strata
