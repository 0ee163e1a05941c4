// Connections whose coefficients are fixed or learned numbers.
#include "residual/papers_testing.h"

namespace strata {
namespace {

TEST(Standard, ReadsTheSumOfTheEmbeddingAndAllUpdates) {
  const Mat given{{0, 4, 0}, {0, 0, 6}};
  Model model("standard", 2, 3);
  const Mat all =
      model.Run({2, 0, 0}, [&](int site, const Vec&) { return given[static_cast<size_t>(site)]; });
  EXPECT_EQ(all, (Mat{{2, 0, 0}, {2, 4, 0}, {2, 4, 6}}));
}

void Add(double factor, const Vec& v, Vec* to) {
  for (size_t d = 0; d < v.size(); ++d) (*to)[d] += factor * v[d];
}

// DenseFormer as its paper has it: blocks with residual connections inside, an average after each.
Mat DenseFormer(const Model& model, int sites, int block, const Vec& e) {
  Mat all, outputs{e};
  Vec h = e;
  for (int site = 0; site <= sites; ++site) {
    const bool ends = site > 0 && (site % block == 0 || site == sites);
    if (ends) {
      outputs.push_back(h);
      const Vec alpha = model.Get(site == sites ? "head.weights" : fmt::format("sites.{}.weights", site));
      EXPECT_EQ(alpha.size(), outputs.size());
      h.assign(h.size(), 0.0);
      for (size_t j = 0; j < outputs.size(); ++j) Add(alpha[j], outputs[j], &h);
    }
    all.push_back(h);
    if (site < sites) Add(1, ToySublayer(site, Vec(h)), &h);
  }
  return all;
}

TEST(Dense, ForwardIsThePapersForEveryDepthAndBlock) {
  for (const int block : {1, 2, 3, 4}) {
    for (const int sites : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
      for (const int dim : {1, 3, 17}) {
        Model model(fmt::format("dense:block={}", block), sites, dim);
        model.Randomise(static_cast<uint64_t>(10 * sites + block));
        const Vec e = RandomVec(dim, 3);
        ExpectClose(DenseFormer(model, sites, block, e), model.Run(e, ToySublayer),
                    fmt::format("block {} sites {} dim {}", block, sites, dim));
      }
    }
  }
}

TEST(Dense, ParameterCountIsThePapers) {
  for (const int64_t blocks : {1, 2, 6, 24}) {
    int64_t sum = 0;
    const auto mechanism = MakeMechanism<float>(ParseResidual("dense"), static_cast<int>(2 * blocks), 8);
    for (const Parameter& p : mechanism->Parameters()) sum += p.size();
    EXPECT_EQ(sum, blocks * (blocks + 3) / 2);
  }
}

// h <- a h + b e where a block begins, written with the running state itself.
Mat WithEmbedding(const Model& model, int sites, int block, const Vec& e) {
  Mat all;
  Vec h = e;
  for (int site = 0; site <= sites; ++site) {
    if (site < sites && site % block == 0) {
      const Vec weights = model.Get(fmt::format("sites.{}.weights", site));
      for (size_t d = 0; d < h.size(); ++d) h[d] = weights[0] * h[d] + weights[1] * e[d];
    }
    all.push_back(h);
    if (site < sites) Add(1, ToySublayer(site, Vec(h)), &h);
  }
  return all;
}

TEST(X0, ForwardIsTheRunningStateAndTheEmbeddingWeighed) {
  for (const int block : {1, 2, 3}) {
    for (const int sites : {1, 2, 3, 4, 5, 9}) {
      for (const int dim : {1, 3, 16}) {
        Model model(fmt::format("x0:block={}", block), sites, dim);
        model.Randomise(static_cast<uint64_t>(10 * sites + block));
        const Vec e = RandomVec(dim, 4);
        ExpectClose(WithEmbedding(model, sites, block, e), model.Run(e, ToySublayer),
                    fmt::format("block {} sites {} dim {}", block, sites, dim));
      }
    }
  }
}

TEST(X0, StartsWithThePublishedWeights) {
  Model model("x0", 6, 2), one("x0", 2, 2);
  model.SetInitial();
  one.SetInitial();
  const Mat expected{{1.15, .20}, {1.10, .125}, {1.05, .05}};
  for (size_t i = 0; i < 3; ++i) {
    const Vec weights = model.Get(fmt::format("sites.{}.weights", 2 * i));
    EXPECT_NEAR(weights[0], expected[i][0], 1e-15);
    EXPECT_NEAR(weights[1], expected[i][1], 1e-15);
  }
  EXPECT_EQ(one.values, (Vec{1.15, .20}));
}

TEST(Scaled, ForwardIsTheUpdateTimesItsGain) {
  for (const int sites : {1, 2, 5, 9}) {
    for (const int dim : {1, 3, 16, 17, 64}) {
      for (const bool per_channel : {false, true}) {
        Model model(per_channel ? "layerscale" : "rezero", sites, dim);
        model.Randomise(static_cast<uint64_t>(sites + dim));
        const Vec e = RandomVec(dim, 5);
        Mat expected{e};
        for (int site = 0; site < sites; ++site) {
          Vec h = expected.back();
          const Vec u = ToySublayer(site, h), gain = model.Get(fmt::format("sites.{}.gain", site));
          for (size_t d = 0; d < h.size(); ++d) h[d] += gain[per_channel ? d : 0] * u[d];
          expected.push_back(h);
        }
        ExpectClose(expected, model.Run(e, ToySublayer), fmt::format("sites {} dim {}", sites, dim));
      }
    }
  }
}

TEST(Scaled, StartsAsItsPapersSay) {
  const auto gains = [](const char* spec, int sites) {
    Model model(spec, sites, 3);
    model.SetInitial();
    return model.values;
  };
  EXPECT_EQ(gains("rezero", 2), Vec(2, 0.0));
  EXPECT_EQ(gains("rezero:init=0.5", 2), Vec(2, 0.5));
  EXPECT_EQ(gains("layerscale", 2 * 18), Vec(2 * 18 * 3, 0.1));
  EXPECT_EQ(gains("layerscale", 2 * 24), Vec(2 * 24 * 3, 1e-5));
  EXPECT_EQ(gains("layerscale", 2 * 25), Vec(2 * 25 * 3, 1e-6));
  EXPECT_EQ(gains("layerscale:init=0.5,learned=false", 2), Vec());
}

// What every one of them is with the weights that its description names.
TEST(Static, EachIsThePlainResidualWhereItsDescriptionSaysSo) {
  const Vec e = RandomVec(5, 6);
  const Mat plain = Model("standard", 5, 5).Run(e, ToySublayer);
  for (const char* spec : {"dense", "dense:block=1", "x0:init=plain", "rezero:init=1", "layerscale:init=1",
                           "rezero:init=1,learned=false"}) {
    Model model(spec, 5, 5);
    model.SetInitial();
    ExpectClose(plain, model.Run(e, ToySublayer), spec);
  }
  Model zero("rezero", 5, 5);
  zero.SetInitial();
  EXPECT_EQ(zero.Run(e, ToySublayer), Mat(6, e)) << "at the start every update counts 0";
  Model half("rezero:init=0.5,learned=false", 1, 5);
  const Vec u = ToySublayer(0, e);
  Vec expected = e;
  Add(0.5, u, &expected);
  EXPECT_EQ(half.Run(e, ToySublayer).back(), expected);
}

}  // namespace
}  // namespace strata
