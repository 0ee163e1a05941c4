// Gates of every channel: Highway (arXiv 1505.00387, eq. 3), Review Residuals (arXiv 2606.31859) and its
// state-gated baseline.
#include "residual/papers_testing.h"

namespace strata {
namespace {

Vec Normalised(const Vec& v, double eps) {
  double square = 0;
  for (const double x : v) square += x * x;
  Vec out = v;
  for (double& x : out) x /= std::sqrt(square / static_cast<double>(v.size()) + eps);
  return out;
}

enum class Form { kHighway, kStateGate, kAdditive, kConvex };

Vec Gate(const Model& model, int site, Form form, const Vec& h, const Vec& u, double eps) {
  const std::string at = "sites." + std::to_string(site) + ".gate.";
  Vec z = model.Get(at + "bias");
  const bool review = form == Form::kAdditive || form == Form::kConvex;
  const Vec a =
      review ? Times(model.Get(at + "state"), Normalised(h, eps)) : Times(model.Get(at + "weight"), h);
  const Vec b = review ? Times(model.Get(at + "update"), Normalised(u, eps)) : Vec(h.size(), 0.0);
  for (size_t d = 0; d < z.size(); ++d) z[d] = Logistic(z[d] + a[d] + b[d]);
  return z;
}

Mat Gated(const Model& model, int sites, Form form, const Vec& e, double eps = 1e-5) {
  Mat all{e};
  Vec h = e;
  for (int site = 0; site < sites; ++site) {
    const Vec u = ToySublayer(site, h), gate = Gate(model, site, form, h, u, eps);
    const bool convex = form == Form::kHighway || form == Form::kConvex;
    for (size_t d = 0; d < h.size(); ++d) h[d] = (convex ? 1 - gate[d] : 1) * h[d] + gate[d] * u[d];
    all.push_back(h);
  }
  return all;
}

TEST(Gates, ForwardIsThePapersForEveryDepthAndWidth) {
  const std::pair<const char*, Form> forms[] = {{"highway", Form::kHighway},
                                                {"state-gate", Form::kStateGate},
                                                {"review", Form::kAdditive},
                                                {"review:form=convex", Form::kConvex}};
  for (const auto& [spec, form] : forms) {
    for (const int sites : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
      for (const int dim : {1, 3, 16, 17, 64}) {
        Model model(spec, sites, dim);
        model.Randomise(static_cast<uint64_t>(100 * sites + dim));
        const Vec e = RandomVec(dim, 5);
        ExpectClose(Gated(model, sites, form, e), model.Run(e, ToySublayer),
                    fmt::format("{} sites {} dim {}", spec, sites, dim));
      }
    }
  }
}

TEST(Gates, TheEpsOfReviewIsAnOption) {
  Model model("review:eps=0.5", 2, 3);
  model.Randomise(4);
  const Vec e = RandomVec(3, 6);
  ExpectClose(Gated(model, 2, Form::kAdditive, e, 0.5), model.Run(e, ToySublayer), "eps 0.5");
}

// The plain residual sum with every update scaled.
Mat Plain(int sites, double factor, const Vec& e) {
  Mat all{e};
  Vec h = e;
  for (int site = 0; site < sites; ++site) {
    const Vec u = ToySublayer(site, h);
    for (size_t d = 0; d < h.size(); ++d) h[d] += factor * u[d];
    all.push_back(h);
  }
  return all;
}

TEST(Gates, ReviewAtItsInitialValuesHalvesEveryUpdate) {
  Model model("review", 4, 5);
  model.SetInitial();
  const Vec e = RandomVec(5, 7);
  EXPECT_EQ(Plain(4, 0.5, e), model.Run(e, ToySublayer)) << "exactly";
}

TEST(Gates, ReviewAndStateGateWithBiasFortyAreThePlainResidual) {
  Model review("review:gate-bias=40", 4, 5), gate("state-gate:gate-bias=40", 4, 5);
  const Vec e = RandomVec(5, 8);
  review.SetInitial();
  EXPECT_EQ(Plain(4, 1, e), review.Run(e, ToySublayer));
  for (int s = 0; s < 4; ++s) gate.Set(fmt::format("sites.{}.gate.bias", s), Vec(5, 40.0));
  EXPECT_EQ(Plain(4, 1, e), gate.Run(e, ToySublayer));
}

TEST(Gates, ReviewWithoutAViewOfTheUpdateIsTheStateGateOnTheNormalisedState) {
  Model model("review", 3, 4);
  model.Randomise(9);
  for (int s = 0; s < 3; ++s) model.Set(fmt::format("sites.{}.gate.update", s), Vec(16, 0.0));
  const Vec e = RandomVec(4, 10);
  Mat expected{e};
  Vec h = e;
  for (int s = 0; s < 3; ++s) {
    const Vec u = ToySublayer(s, h), bias = model.Get(fmt::format("sites.{}.gate.bias", s));
    const Vec z = Times(model.Get(fmt::format("sites.{}.gate.state", s)), Normalised(h, 1e-5));
    for (size_t d = 0; d < h.size(); ++d) h[d] += Logistic(z[d] + bias[d]) * u[d];
    expected.push_back(h);
  }
  ExpectClose(expected, model.Run(e, ToySublayer), "W_u = 0");
}

TEST(Gates, HighwayStartsWithMostOfTheStateCarried) {
  Model model("highway", 1, 4);
  model.SetInitial();
  for (double& v : model.values) v = v == -2 ? v : 0;  // W = 0
  const Vec e = RandomVec(4, 11), u = ToySublayer(0, e);
  const double t = 1 / (1 + std::exp(2.0));
  Vec expected;
  for (size_t d = 0; d < 4; ++d) expected.push_back((1 - t) * e[d] + t * u[d]);
  ExpectClose({e, expected}, model.Run(e, ToySublayer), "highway");
}

TEST(Gates, ParameterCountsAreThePapers) {
  const auto count = [](const char* spec) {
    int64_t sum = 0;
    const auto mechanism = MakeMechanism<float>(ParseResidual(spec), 3, 64);
    for (const Parameter& p : mechanism->Parameters()) sum += p.size();
    return sum / 3;
  };
  EXPECT_EQ(count("highway"), 64 * 64 + 64);
  EXPECT_EQ(count("state-gate"), 64 * 64 + 64);
  EXPECT_EQ(count("review"), 2 * 64 * 64 + 64);
}

// The numbers that a case of three channels gave elsewhere: F(x) = M N(x).
struct ReviewCase {
  const char* spec;
  Vec next, dh, dbias;
};

TEST(Gates, ReviewMeetsThePublishedVectorForwardAndBackward) {
  const Vec m{.5, -.25, .1, .2, .3, -.4, -.6, .1, .7}, h{1, -2, .5}, cotangent{.3, -.2, .5};
  const ReviewCase cases[] = {{"review",
                               {1.226840225, -2.243163781, 0.223947534},
                               {0.109865994, -0.228824911, 0.764967877},
                               {0.048603288, 0.022559409, -0.026015144}},
                              {"review:form=convex",
                               {0.941047588, -1.170909231, -0.181812612},
                               {0.057661830, -0.107740413, 0.347576286},
                               {-0.012631274, -0.076918519, -0.064253921}}};
  for (const ReviewCase& c : cases) {
    Model model(c.spec, 1, 3);
    model.Set("sites.0.gate.state", Pattern(3, 3, 2, 3, 5, 5));
    model.Set("sites.0.gate.update", Pattern(3, 3, 3, 1, 7, 6));
    model.Set("sites.0.gate.bias", {.1, -.2, 0});
    const auto f = [&](int, const Vec& x) { return Times(m, Normalised(x, 1e-5)); };
    const Mat all = model.Run(h, f);
    for (size_t d = 0; d < 3; ++d) EXPECT_NEAR(all[1][d], c.next[d], 6e-10) << c.spec;
    Vec dp(model.values.size());
    const double* du = model.walker->BeginBack(cotangent.data(), dp.data());
    // Back through M N(h): N's pullback is (g - N mean(g N)) / rms.
    Vec g(3, 0.0);
    for (size_t i = 0; i < 9; ++i) g[i % 3] += m[i] * du[i / 3];
    const Vec n = Normalised(h, 1e-5);
    double mean = 0;
    for (size_t d = 0; d < 3; ++d) mean += g[d] * n[d] / 3;
    Vec dx;
    for (size_t d = 0; d < 3; ++d) dx.push_back((g[d] - n[d] * mean) * n[d] / h[d]);
    const double* dh = model.walker->Back(dx.data());
    const auto [bias, size] = model.offsets.at("sites.0.gate.bias");
    for (size_t d = 0; d < 3; ++d) {
      EXPECT_NEAR(dh[d], c.dh[d], 6e-10) << c.spec;
      EXPECT_NEAR(dp[static_cast<size_t>(bias) + d], c.dbias[d], 6e-10) << c.spec << size;
    }
  }
}

}  // namespace
}  // namespace strata
