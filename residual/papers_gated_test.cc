// Gated Residual, arXiv 2608.30320, eq. 30-34.
#include "residual/papers_testing.h"

namespace strata {
namespace {

double Rms(const Vec& v, double eps) {
  double square = 0;
  for (const double x : v) square += x * x;
  return std::sqrt(square / static_cast<double>(v.size()) + eps);
}

struct Read {
  Vec x, write;
};

Read GatedRead(const Model& model, const std::string& at, const Mat& branches, bool writes) {
  const size_t n = branches.size(), d = branches[0].size();
  const double count = static_cast<double>(n);
  const Vec w = model.Get(at + ".norm.weight");
  Vec flat;
  for (size_t i = 0; i < n; ++i) {
    const double rms = Rms(branches[i], 1e-6);
    for (size_t c = 0; c < d; ++c) flat.push_back((1 + w[i * d + c]) * branches[i][c] / rms);  // eq. 30
  }
  Vec a = Times(model.Get(at + ".down.weight"), flat);
  for (double& v : a) v = v / count * Logistic(v / count);  // SiLU, eq. 31
  const Vec logits = Times(model.Get(at + ".up.weight"), a);
  Read out{Vec(d, 0.0), {}};
  for (size_t i = 0; i < n * d; ++i) out.x[i % d] += Logistic(logits[i]) * flat[i] / count;  // eq. 32
  if (!writes) return out;
  for (const double c : Times(model.Get(at + ".write.weight"), flat))
    out.write.push_back(2 * Logistic(c / count));
  return out;
}

Mat GatedResidual(const Model& model, int sites, size_t n, bool gated_head, const Vec& e) {
  Mat branches(n, e), all;
  for (int l = 0; l < sites; ++l) {
    const Read read = GatedRead(model, "sites." + std::to_string(l), branches, true);
    const Vec y = ToySublayer(l, read.x);
    for (size_t i = 0; i < n; ++i) {
      for (size_t c = 0; c < y.size(); ++c) branches[i][c] += read.write[i] * y[c];  // eq. 34
    }
    all.push_back(read.x);
  }
  Vec mean(e.size(), 0.0);
  for (const Vec& branch : branches) {
    for (size_t c = 0; c < e.size(); ++c) mean[c] += branch[c] / static_cast<double>(n);
  }
  all.push_back(gated_head ? GatedRead(model, "head", branches, false).x : mean);
  return all;
}

TEST(GatedResidual, ForwardIsThePapersForEverySlotsDepthAndWidth) {
  for (const int slots : {1, 2, 3, 4, 5, 8}) {
    for (const int sites : {1, 2, 5, 9}) {
      for (const int dim : {1, 3, 16, 17, 64}) {
        for (const bool gated_head : {true, false}) {
          const std::string spec =
              fmt::format("gated:slots={},rank={},head={}", slots, slots + 1, gated_head ? "gated" : "mean");
          Model model(spec, sites, dim);
          model.Randomise(static_cast<uint64_t>(1000 * slots + 100 * sites + dim));
          const Vec e = RandomVec(dim, 7);
          ExpectClose(GatedResidual(model, sites, static_cast<size_t>(slots), gated_head, e),
                      model.Run(e, ToySublayer), fmt::format("{} sites {} dim {}", spec, sites, dim));
        }
      }
    }
  }
}

TEST(GatedResidual, WithGainTwoAndNoGatesItIsThePreNormNetwork) {
  for (const int slots : {1, 3}) {
    Model model(fmt::format("gated:slots={},rank=2", slots), 4, 5);
    model.Randomise(3);
    for (const auto& [name, where] : model.offsets) {
      const auto size = static_cast<size_t>(where.second);
      if (name.find("norm") != std::string::npos) model.Set(name, Vec(size, 1.0));
      if (name.find("down") == std::string::npos && name.find("norm") == std::string::npos)
        model.Set(name, Vec(size, 0.0));
    }
    const Vec e = RandomVec(5, 8);
    Mat expected;
    Vec h = e;
    for (int l = 0; l <= 4; ++l) {
      Vec x = h;
      for (double& v : x) v /= Rms(h, 1e-6);
      expected.push_back(x);
      if (l == 4) break;
      const Vec u = ToySublayer(l, x);
      for (size_t d = 0; d < h.size(); ++d) h[d] += u[d];
    }
    ExpectClose(expected, model.Run(e, ToySublayer), fmt::format("slots {}", slots));
  }
}

TEST(GatedResidual, ParameterCountsAreThePapers) {
  const auto count = [](int sites, int64_t dim) {
    int64_t sum = 0;
    const auto mechanism = MakeMechanism<float>(ParseResidual("gated"), sites, dim);
    for (const Parameter& p : mechanism->Parameters()) sum += p.size();
    return sum;
  };
  for (const int64_t d : {256, 512, 2560}) {
    EXPECT_EQ(count(2, d) - count(1, d), d * d + 20 * d);
    EXPECT_EQ(count(1, d), 2 * d * d + 24 * d);  // and the head's read: d^2 + 4 d
  }
}

// A case of two branches, three channels and rank 2 with a gradient of its own for each branch.
TEST(GatedResidual, MeetsThePublishedVectorForwardAndBackward) {
  Model model("gated:slots=2,rank=2,head=mean", 1, 3);
  model.Set("sites.0.norm.weight", {.1, 0, -.1, 0, .2, .05});
  model.Set("sites.0.down.weight", Pattern(2, 6, 3, 2, 7, 5));
  model.Set("sites.0.up.weight", Pattern(6, 2, 2, 5, 9, 4));
  model.Set("sites.0.write.weight", Pattern(2, 6, 4, 3, 5, 3));
  const Vec m{.5, -.25, .1, .2, .3, -.4, -.6, .1, .7};
  Mat branches{{1, -2, .5}, {.25, 1.5, -1}}, gradients{{.3, -.2, .5}, {-.4, .1, .25}};
  const State<double> s{1, {branches[0].data(), branches[1].data()}},
      ds{1, {gradients[0].data(), gradients[1].data()}};
  const Mechanism<double>& gated = *model.mechanism;
  const MixDims dims{1, 3, 2};
  CoefBuffers<double> buffers, dbuffers;  // new memory is zero
  buffers.Resize(gated.At(0), 3, 1);
  dbuffers.Resize(gated.At(0), 3, 1);
  Coefs<double> coefs = buffers.All(), dcoefs = dbuffers.All();
  gated.Control(0, model.values.data(), s, &coefs);
  Vec x(3), du(3), dx(3, 0.0), dp(model.values.size());
  strata::Read<double>(dims, Coef::kChannel, coefs.read.data(), s.slots.data(), x.data());
  const Vec u = Times(m, x), expected_u{0.114140882, 0.128927236, -0.272571237};
  WriteVjp<double>(dims, Coef::kOne, nullptr, Coef::kToken, coefs.write.data(), s.slots.data(), u.data(),
                   ds.slots.data(), du.data(), nullptr, dcoefs.write.data());
  for (size_t i = 0; i < 9; ++i) dx[i % 3] += m[i] * du[i / 3];
  ReadVjp<double>(dims, Coef::kChannel, coefs.read.data(), s.slots.data(), dx.data(), ds.slots.data(),
                  dcoefs.read.data());
  gated.ControlVjp(0, model.values.data(), s, coefs, &dcoefs, ds, dp.data());
  const Mat expected{{0.207237974, -0.216553126, 0.619311511}, {-0.511895846, 0.174135898, 0.333230009}};
  constexpr double kNineDigits = 6e-10;
  for (size_t d = 0; d < 3; ++d) {
    EXPECT_NEAR(u[d], expected_u[d], kNineDigits);
    for (size_t k = 0; k < 2; ++k) EXPECT_NEAR(gradients[k][d], expected[k][d], kNineDigits) << k;
  }
  const auto at = [&](const char* name, size_t i) {
    return dp[static_cast<size_t>(model.offsets.at(name).first) + i];
  };
  EXPECT_NEAR(at("sites.0.up.weight", 0), 0.006326192, kNineDigits);
  EXPECT_NEAR(at("sites.0.up.weight", 1), 0.009173309, kNineDigits);
  EXPECT_NEAR(at("sites.0.down.weight", 0), 0.013834039, kNineDigits);
  EXPECT_NEAR(at("sites.0.write.weight", 0), -0.026374219, kNineDigits);
  const double of_gain[] = {-0.089815313, 0.008966980, 0.064607834};
  for (size_t d = 0; d < 3; ++d) EXPECT_NEAR(at("sites.0.norm.weight", d), of_gain[d], kNineDigits);
}

}  // namespace
}  // namespace strata
