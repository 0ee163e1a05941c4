// Corners where two mechanisms, or a mechanism and arithmetic, must coincide.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "residual/testing.h"

namespace strata {
namespace {

using Values = std::vector<Numbers<double>>;

Values Walk(const Toy<double>& toy, const Numbers<double>& e) {
  Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kInfer);
  return Forward(toy, &walker, e);
}

void ExpectNear(const Values& a, const Values& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t s = 0; s < a.size(); ++s) {
    for (size_t i = 0; i < a[s].size(); ++i) EXPECT_NEAR(a[s][i], b[s][i], tolerance) << "site " << s;
  }
}

// Full attention residuals without slots, blocks or a walker: a growing list of everything said so far.
Values FullAttention(const Toy<double>& toy, const Numbers<double>& e) {
  Values sources{e}, all;
  for (int s = 0; s <= toy.sites; ++s) {
    const double* query = toy.parameters.data() + 2 * s * toy.dim;
    Numbers<double> x(e.size(), 0.0);
    double total = 0;
    for (const auto& v : sources) {
      double sq = 0, dot = 0;
      for (size_t d = 0; d < v.size(); ++d) {
        sq += v[d] * v[d];
        dot += query[d] * query[static_cast<size_t>(toy.dim) + d] * v[d];
      }
      const double weight = std::exp(dot / std::sqrt(sq / static_cast<double>(toy.dim) + 1e-6));
      total += weight;
      for (size_t d = 0; d < v.size(); ++d) x[d] += weight * v[d];
    }
    for (double& v : x) v /= total;
    all.push_back(x);
    Numbers<double> u(x.size());
    if (s < toy.sites) toy.Sublayer(s, 1, x.data(), u.data());
    sources.push_back(u);
  }
  return all;
}

TEST(Corners, AttnResWithBlockOneIsFull) {
  for (const int sites : {1, 2, 8}) {
    Toy<double> toy("attnres:block=1", sites, 5);
    toy.Randomise(1);
    const auto e = RandomNumbers(5, 1, 2);
    ExpectNear(Walk(toy, e), FullAttention(toy, e), 1e-14);
  }
}

TEST(Corners, AttnResWithOneBlockReadsTheEmbeddingAndTheSumOfUpdates) {
  Toy<double> toy("attnres:block=50", 4, 3), same("attnres:block=4", 4, 3);
  toy.Randomise(3);
  same.Randomise(3);
  const auto e = RandomNumbers(3, 1, 4);
  EXPECT_EQ(Walk(toy, e), Walk(same, e));
  for (int s = 1; s <= 4; ++s) EXPECT_EQ(toy.mechanism->At(s).slots, 2);
}

TEST(Corners, OneSourceIsTheIdentityWithGradientsExactlyZero) {
  Toy<double> toy("attnres:block=2", 3, 5);
  toy.Randomise(5);
  const auto e = RandomNumbers(4 * 5, 1, 6), cotangent = RandomNumbers(4 * 5, 1, 7);
  Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kTrain);
  const auto x = Forward(toy, &walker, e);
  EXPECT_EQ(x[0], e);
  const auto g = Backward(toy, &walker, x, cotangent);
  for (size_t i = 0; i < 2 * 5; ++i) EXPECT_EQ(g.parameters[i], 0);
  for (size_t i = 2 * 5; i < g.parameters.size(); ++i) EXPECT_NE(g.parameters[i], 0);
}

TEST(Corners, ZeroQueryReadsTheMeanAndAnEqualSourceCountsTwice) {
  Toy<double> toy("attnres:block=1", 3, 2);
  toy.SetInitial();
  Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kTrain);
  const Numbers<double> e{3, 9};
  const Numbers<double> updates[] = {{3, 9}, {0, 3}, {6, 6}};
  const double* x = walker.Begin(toy.parameters.data(), e.data(), 1);
  Values all{{x, x + 2}};
  for (const auto& u : updates) {
    std::copy(u.begin(), u.end(), walker.update());
    x = walker.Next();
    all.push_back({x, x + 2});
  }
  ExpectNear(all, {{3, 9}, {3, 9}, {2, 7}, {3, 6.75}}, 1e-15);
  // e and u_0 are equal: with a query they weigh like one source of twice the weight.
  toy.parameters[4 * 2] = 1;  // sites.2.query
  walker.Begin(toy.parameters.data(), e.data(), 1);
  for (int s = 0; s < 2; ++s) {
    std::copy(updates[s].begin(), updates[s].end(), walker.update());
    x = walker.Next();
  }
  const double twice = 2 * std::exp(3 / std::sqrt(45 + 1e-6)), once = std::exp(0 / std::sqrt(4.5));
  EXPECT_NEAR(x[0], twice * 3 / (twice + once), 1e-15);
  EXPECT_NEAR(x[1], (twice * 9 + once * 3) / (twice + once), 1e-14);
}

TEST(Corners, MhcInThePapersFormIsV4WithoutEps) {
  for (const int slots : {1, 3, 4}) {
    Toy<double> paper(fmt::format("mhc:slots={},form=paper", slots), 5, 6);
    Toy<double> v4(fmt::format("mhc:slots={},eps=0", slots), 5, 6);
    paper.Randomise(8);
    v4.Randomise(8);
    const auto e = RandomNumbers(3 * 6, 1, 9);
    ExpectNear(Walk(paper, e), Walk(v4, e), 3e-16);
  }
}

TEST(Corners, MhcWithOneSlotAndOpenGatesIsThePlainResidual) {
  Toy<double> mhc("mhc:slots=1,form=paper", 6, 4), standard("standard", 6, 4);
  mhc.Randomise(10);
  standard.weights = mhc.weights;
  size_t at = 0;
  for (const Parameter& p : mhc.mechanism->Parameters()) {
    const bool bias = p.name.find("bias") != std::string::npos;
    for (int64_t i = 0; i < p.size(); ++i) mhc.parameters[at++] = bias && i == 0 ? 60 : 0;
  }
  const auto e = RandomNumbers(2 * 4, 1, 11);
  ExpectNear(Walk(mhc, e), Walk(standard, e), 1e-15);
}

// A slot that is read, kept and written with 1: nothing is left of the hyper-connection.
TEST(Corners, HcWithOneSlotAndUnitTablesIsThePlainResidualBitForBit) {
  for (const char* spec : {"hc:slots=1,dynamic=false", "hc:slots=1", "hc:slots=1,norm=rms"}) {
    for (const int64_t dim : {1, 7, 64}) {
      Toy<float> hc(spec, 6, dim), standard("standard", 6, dim);
      standard.Randomise(22);
      hc.SetInitial();
      hc.weights = standard.weights;
      const auto e = Cast<float>(RandomNumbers(5 * dim, 1, 23));
      const Numbers<float> cotangent = Cast<float>(RandomNumbers(5 * dim, 1, 24));
      Walker<float> a(*hc.mechanism, Walker<float>::Mode::kTrain),
          b(*standard.mechanism, Walker<float>::Mode::kTrain);
      const auto x = Forward(hc, &a, e);
      EXPECT_EQ(x, Forward(standard, &b, e)) << spec;
      EXPECT_EQ(Backward(hc, &a, x, cotangent).embedding, Backward(standard, &b, x, cotangent).embedding);
    }
  }
}

TEST(Corners, KromWithOneFactorIsMhcLiteWithTwoSlots) {
  for (const char* collapse : {"mean", "head"}) {
    Toy<double> krom(fmt::format("krom:slots=2,collapse={}", collapse), 5, 6);
    Toy<double> lite(fmt::format("mhc-lite:slots=2,collapse={}", collapse), 5, 6);
    krom.Randomise(16);
    lite.Randomise(16);
    const auto e = RandomNumbers(3 * 6, 1, 17);
    ExpectNear(Walk(krom, e), Walk(lite, e), 1e-14);
  }
}

// However large its logits are.
TEST(Corners, KeepOfMhcLiteAndKromIsDoublyStochasticWithinFourUlp) {
  for (const std::string spec :
       {"mhc-lite:slots=1", "mhc-lite:slots=2", "mhc-lite:slots=3", "mhc-lite", "mhc-lite:slots=5",
        "krom:slots=1", "krom:slots=2", "krom", "krom:slots=8", "krom:slots=32"}) {
    double worst = 0;
    for (const double size : {0.0, 0.7, 5.0, 50.0, 1e4}) {
      Toy<double> toy(spec, 2, 3);
      toy.Randomise(18);
      for (double& v : toy.parameters) v *= size;
      Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kTrain);
      constexpr int64_t kTokens = 50;
      Forward(toy, &walker, RandomNumbers(kTokens * 3, 1, 19));
      const int64_t n = toy.mechanism->open_slots();
      const Slice<double>& keep = walker.coefs(0).keep;
      ASSERT_EQ(keep.size(), kTokens * n * n);
      for (int64_t i = 0; i < kTokens * n; ++i) {
        double row = 0, column = 0;
        for (int64_t k = 0; k < n; ++k) {
          const double of_row = keep[i * n + k], of_column = keep[i / n * n * n + k * n + i % n];
          EXPECT_TRUE(of_row >= 0 && of_row <= 1 + 1e-15) << spec;
          row += of_row;
          column += of_column;
        }
        worst = std::max({worst, std::abs(row - 1), std::abs(column - 1)});
      }
    }
    EXPECT_LE(worst, 4 * std::numeric_limits<double>::epsilon());
    std::printf("%-16s rows and columns: largest distance of a sum from 1 %.1f ulp\n", spec.c_str(),
                worst / std::numeric_limits<double>::epsilon());
  }
}

// Site 0 puts a mark on slot 0 alone; site 1 shifts the slots by one: slot k + 1 takes what slot k was.
TEST(Orientation, ACyclicShiftMovesEverySlotToTheNext) {
  constexpr int kSlots = 4;
  Toy<double> toy("mhc:slots=4", 3, 1);
  size_t at = 0;
  int site = -1;
  for (const Parameter& p : toy.mechanism->Parameters()) {
    const bool bias = p.name.find("bias") != std::string::npos;
    site += p.name.find("projection") != std::string::npos ? 1 : 0;
    for (int i = 0; i < p.size(); ++i, ++at) {
      if (!bias) continue;
      const int to = (i - 2 * kSlots) / kSlots, from = (i - 2 * kSlots) % kSlots;
      if (i < kSlots) {
        toy.parameters[at] = 0;
      } else if (i < 2 * kSlots) {
        toy.parameters[at] = site == 0 && i == kSlots ? 60 : -60;
      } else {
        toy.parameters[at] = to == (from + (site > 0 ? 1 : 0)) % kSlots ? 30 : -30;
      }
    }
  }
  Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kTrain);
  const double e = 1;
  walker.Begin(toy.parameters.data(), &e, 1);
  for (int s = 0; s < 3; ++s) {
    *walker.update() = 5;
    walker.Next();
  }
  for (int s = 1; s <= 3; ++s) {
    for (int k = 0; k < kSlots; ++k) {
      EXPECT_NEAR(walker.state(s).slots[static_cast<size_t>(k)][0], k == s - 1 ? 11 : 1, 2e-4)
          << s << " slot " << k;
    }
  }
}

// A mechanism that starts from given sources; what its first site reads.
Numbers<double> ReadOf(const std::string& spec, const Numbers<double>& query,
                       const std::vector<Numbers<double>>& sources) {
  const auto dim = static_cast<int64_t>(query.size());
  const auto mechanism =
      MakeMechanism<double>(ParseResidual(spec), Size{1, dim, static_cast<int>(sources.size())});
  Numbers<double> p = InitialValues(mechanism->Parameters(), "", 1);
  std::copy(query.begin(), query.end(), p.begin());  // sites.0.query comes first
  std::vector<const double*> slots;
  for (const auto& source : sources) slots.push_back(source.data());
  Walker<double> walker(*mechanism, Walker<double>::Mode::kInfer);
  const double* x = walker.Begin(p.data(), slots, 1);
  return {x, x + dim};
}

TEST(AttnResCorners, ASourceTwiceHasTwiceTheWeightAndOrderDoesNotMatter) {
  const auto query = RandomNumbers(5, 1, 60), a = RandomNumbers(5, 2, 61), b = RandomNumbers(5, 2, 62);
  const auto once = ReadOf("attnres", query, {a, b}), twice = ReadOf("attnres", query, {a, b, b});
  const auto turned = ReadOf("attnres", query, {b, a, b});
  // once = w a + (1 - w) b;  twice = w / (2 - w) a + ...
  const double w = (once[0] - b[0]) / (a[0] - b[0]), both = w / (2 - w);
  for (size_t d = 0; d < 5; ++d) {
    EXPECT_NEAR(twice[d], both * a[d] + (1 - both) * b[d], 1e-13);
    EXPECT_NEAR(turned[d], twice[d], 1e-14);
  }
}

// Per block one pass over the closed slots, then an exact merge with the open one (arXiv 2603.15031,
// algorithm 1).
TEST(AttnResCorners, TwoPhasesEqualTheDirectRead) {
  for (const int block : {2, 3, 5}) {
    constexpr int kDim = 7;
    Toy<double> toy(fmt::format("attnres:block={}", block), 8, kDim);
    toy.Randomise(63);
    Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kTrain);
    const auto x = Forward(toy, &walker, RandomNumbers(kDim, 1, 64));
    for (int site = 0; site <= 8; ++site) {
      const Rule rule = toy.mechanism->At(site);
      const double* query = toy.parameters.data() + site * 2 * kDim;
      const auto score = [&](const double* v) {
        double sq = 0, dot = 0;
        for (int d = 0; d < kDim; ++d) sq += v[d] * v[d] / kDim;
        for (int d = 0; d < kDim; ++d) dot += query[d] * query[kDim + d] * v[d];
        return dot / std::sqrt(sq + 1e-6);
      };
      const auto& slots = walker.state(site).slots;
      double sum = 0, merged[kDim] = {};
      for (int k = 0; k < rule.closed; ++k) {
        const double* v = slots[static_cast<size_t>(k)];
        sum += std::exp(score(v));
        for (int d = 0; d < kDim; ++d) merged[d] += std::exp(score(v)) * v[d];
      }
      for (double& v : merged) v /= sum;
      if (rule.open() > 0) {
        const double p = 1 / (1 + std::exp(std::log(sum) - score(slots.back())));
        for (int d = 0; d < kDim; ++d) merged[d] += p * (slots.back()[d] - merged[d]);
      }
      for (size_t d = 0; d < kDim; ++d) {
        EXPECT_NEAR(x[static_cast<size_t>(site)][d], merged[d], 1e-14 * 10)
            << "block " << block << " site " << site;
      }
    }
  }
}

}  // namespace
}  // namespace strata
