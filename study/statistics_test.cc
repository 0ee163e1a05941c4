#include "study/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace strata {
namespace {

TEST(Statistics, StudentQuantilesOfTheTables) {
  const double table[][3] = {{0.975, 1, 12.7062047},  {0.975, 2, 4.30265273},  {0.975, 5, 2.57058184},
                             {0.975, 30, 2.04227246}, {0.95, 10, 1.81246112},  {0.995, 3, 5.84090931},
                             {0.9995, 4, 8.61030158}, {0.975, 1e6, 1.95996635}};
  for (const auto& [p, df, t] : table) {
    EXPECT_NEAR(StudentQuantile(p, df), t, 1e-7 * t) << p << " " << df;
    EXPECT_NEAR(StudentQuantile(1 - p, df), -t, 1e-7 * t) << p << " " << df;
  }
  EXPECT_EQ(StudentQuantile(0.5, 7), 0);
}

TEST(Statistics, OneAndTwoDegreesOfFreedomHaveClosedForms) {
  for (const double t : {-40.0, -3.0, -0.2, 0.0, 1e-4, 0.7, 2.5, 1e4}) {
    EXPECT_NEAR(StudentCdf(t, 1), 0.5 + std::atan(t) / std::numbers::pi, 1e-13) << t;
    EXPECT_NEAR(StudentCdf(t, 2), 0.5 + t / (2 * std::sqrt(2 + t * t)), 1e-13) << t;
  }
}

TEST(Statistics, QuantileInvertsTheDistribution) {
  for (const double df : {1.0, 1.5, 4.0, 19.0, 200.0}) {
    for (const double p : {1e-6, 0.01, 0.3, 0.77, 0.999}) {
      EXPECT_NEAR(StudentCdf(StudentQuantile(p, df), df), p, 1e-12) << p << " " << df;
    }
  }
}

TEST(Statistics, MeanMedianDeviation) {
  EXPECT_DOUBLE_EQ(Mean({1, 2, 6}), 3);
  EXPECT_DOUBLE_EQ(Median({6, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(Median({6, 1, 2, 3}), 2.5);
  EXPECT_DOUBLE_EQ(SampleDeviation({1, 2, 6}), std::sqrt(7.0));
  EXPECT_THROW(Mean({}), Error);
  EXPECT_THROW(Median({}), Error);
  EXPECT_THROW(SampleDeviation({1}), Error);
}

// Differences -1, 0, -2, -1: mean -1, deviation sqrt(2/3), standard error 0.40824829, t_{0.975, 3}
// = 3.18244631.
TEST(Statistics, PairedInterval) {
  const PairedDifference d = ComparePairs({4, 7, 3, 8}, {5, 7, 5, 9});
  EXPECT_TRUE(d.has_interval);
  EXPECT_DOUBLE_EQ(d.mean, -1);
  EXPECT_NEAR(d.low, -1 - 1.29922827, 1e-7);
  EXPECT_NEAR(d.high, -1 + 1.29922827, 1e-7);
  const PairedDifference narrow = ComparePairs({4, 7, 3, 8}, {5, 7, 5, 9}, 0.5);
  EXPECT_NEAR(narrow.high, -1 + 0.40824829 * 0.76489233, 1e-7);
}

TEST(Statistics, OnePairGivesNoInterval) {
  const PairedDifference d = ComparePairs({3}, {5});
  EXPECT_FALSE(d.has_interval);
  EXPECT_DOUBLE_EQ(d.mean, -2);
  EXPECT_DOUBLE_EQ(d.low, -2);
  EXPECT_THROW(ComparePairs({}, {}), Error);
  EXPECT_THROW(ComparePairs({1, 2}, {1}), Error);
}

}  // namespace
}  // namespace strata
