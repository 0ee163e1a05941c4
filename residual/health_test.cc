#include "residual/health.h"

#include <gtest/gtest.h>

#include "residual/testing.h"

namespace strata {
namespace {

Health HealthOf(Toy<float>* toy, int64_t tokens) {
  Walker<float> walker(*toy->mechanism, Walker<float>::Mode::kTrain);
  Forward(*toy, &walker, Cast<float>(RandomNumbers(tokens * toy->dim, 1, 3)));
  return MeasureHealth(*toy->mechanism, walker);
}

TEST(Health, StandardHasNothingToMeasure) {
  Toy<float> toy("standard", 4, 8);
  EXPECT_TRUE(HealthOf(&toy, 5).values.empty());
}

TEST(Health, MhcAtTheStartIsOneStreamOfGainOne) {
  Toy<float> toy("mhc", 4, 8);
  toy.SetInitial();
  const Health health = HealthOf(&toy, 5);
  EXPECT_LT(health.values.at("slot_spread"), 1e-6);
  EXPECT_EQ(health.warnings.count("slot_spread"), 1u);
  EXPECT_NEAR(health.values.at("gain_forward"), 1, 1e-4);
  EXPECT_NEAR(health.values.at("gain_backward"), 1, 1e-4);
  EXPECT_NEAR(health.values.at("gate_mean"), 1, 1e-6);
  EXPECT_LT(health.values.at("keep_row_error"), 1e-5);
  EXPECT_LT(health.values.at("keep_column_error"), 1e-4);
}

TEST(Health, GrownLogitsSpreadTheSlotsAndAreWarnedOf) {
  Toy<float> toy("mhc:slots=4,iterations=2", 6, 8);
  toy.Randomise(5);
  for (float& v : toy.parameters) v *= 6;
  const Health health = HealthOf(&toy, 20);
  EXPECT_GT(health.values.at("slot_spread"), 0.05);
  EXPECT_GT(health.values.at("keep_column_error"), 0.5);
  EXPECT_EQ(health.warnings.count("keep_column_error"), 1u);
  EXPECT_EQ(health.warnings.count("keep_row_error"), 0u);
}

TEST(Health, EqualQueriesGiveEntropyOneAndSharpOnesLess) {
  Toy<float> toy("attnres:block=1", 5, 8);
  toy.SetInitial();
  EXPECT_NEAR(HealthOf(&toy, 5).values.at("depth_entropy"), 1, 1e-6);
  toy.Randomise(6);
  for (float& v : toy.parameters) v *= 30;
  const Health health = HealthOf(&toy, 50);
  EXPECT_LT(health.values.at("depth_entropy"), 0.05);
  EXPECT_EQ(health.warnings.count("depth_entropy"), 1u);
}

TEST(Health, GatesOfANormalisedReadAreTheGatesThemselves) {
  Toy<float> toy("gated:slots=2,rank=2", 3, 8);
  for (float& v : toy.parameters) v = 0;
  const Health health = HealthOf(&toy, 5);
  EXPECT_EQ(health.values.at("gate_mean"), 0.5);
  EXPECT_EQ(health.values.at("gate_deviation"), 0);
}

}  // namespace
}  // namespace strata
