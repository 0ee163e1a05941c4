// Depth mixing matrices times the embedding and the updates are what is read; coefficients held at given
// numbers.
#include <gtest/gtest.h>

#include "residual/held.h"
#include "residual/mixing.h"
#include "residual/testing.h"

namespace strata {
namespace {

TEST(Mixing, TimesTheUpdatesIsTheReadForEveryMechanism) {
  constexpr int kSites = 7;
  constexpr int64_t kDim = 5, kTokens = 3;
  int checked = 0;
  for (const std::string& spec : ConformanceSpecs()) {
    Toy<double> toy(spec, kSites, kDim);
    toy.Randomise(70);
    Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kTrain);
    const auto e = RandomNumbers(kTokens * kDim, 1, 71);
    const auto x = Forward(toy, &walker, e);
    const std::vector<double> m = DepthMixing(*toy.mechanism, walker);
    if (m.empty()) continue;
    ++checked;
    constexpr size_t kSources = kSites + 1;
    ASSERT_EQ(m.size(), kTokens * kSources * kSources) << spec;
    std::vector<Numbers<double>> v{e};
    for (int s = 0; s < kSites; ++s) {
      v.emplace_back(e.size());
      toy.Sublayer(s, kTokens, x[static_cast<size_t>(s)].data(), v.back().data());
    }
    for (size_t reader = 0; reader < kSources; ++reader) {
      for (size_t i = 0; i < e.size(); ++i) {
        const double* row = m.data() + (i / kDim * kSources + reader) * kSources;
        double sum = 0, size = 1;
        for (size_t source = 0; source < kSources; ++source) {
          sum += row[source] * v[source][i];
          size += std::abs(row[source] * v[source][i]);
          EXPECT_TRUE(source <= reader || row[source] == 0) << spec;
        }
        EXPECT_NEAR(sum, x[reader][i], 1e-14 * size) << spec << " reader " << reader;
      }
    }
  }
  EXPECT_GE(checked, 30);
}

TEST(Mixing, IsLeftOutWhereACoefficientIsPerChannel) {
  for (const char* spec : {"gated", "highway", "review", "layerscale", "attnres:heads=5"}) {
    Toy<double> toy(spec, 2, 5);
    Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kTrain);
    Forward(toy, &walker, RandomNumbers(5, 1, 72));
    EXPECT_TRUE(DepthMixing(*toy.mechanism, walker).empty()) << spec;
  }
}

TEST(Held, CoefficientsReplaceWhatWouldBeDecidedAndPassNoGradient) {
  std::vector<HeldSite> held(1);
  held[0].read = HeldCoef{Coef::kToken, {0.75, 0.25}};
  held[0].keep = HeldCoef{Coef::kMatrix, {.8, .2, .2, .8}};
  held[0].write = HeldCoef{Coef::kToken, {1, 0.5}};
  Toy<double> toy("mhc:slots=2", 1, 2);
  toy.Randomise(73);
  toy.mechanism = MakeHeld(std::move(toy.mechanism), held);
  Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kTrain);
  const auto x = Forward(toy, &walker, RandomNumbers(2, 1, 74));
  EXPECT_EQ(walker.coefs(0).write[1], 0.5);
  const auto g = Backward(toy, &walker, x, RandomNumbers(2, 1, 75));
  for (const double v : g.parameters) EXPECT_EQ(v, 0);
}

}  // namespace
}  // namespace strata
