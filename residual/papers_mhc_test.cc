// Manifold-constrained hyper-connections: arXiv 2512.24880, and the released code of DeepSeek-V4.
#include "residual/papers_testing.h"

namespace strata {
namespace {

// v projection^T / rms(v) over all streams at once.
Vec Normalised(const Mat& streams, const Vec& projection, double norm_eps) {
  Vec v;
  for (const Vec& stream : streams) v.insert(v.end(), stream.begin(), stream.end());
  double square = 0;
  for (const double x : v) square += x * x;
  const double rms = std::sqrt(square / static_cast<double>(v.size()) + norm_eps);
  Vec out(projection.size() / v.size(), 0.0);
  for (size_t m = 0; m < out.size(); ++m) {
    for (size_t i = 0; i < v.size(); ++i) out[m] += projection[m * v.size() + i] * (v[i] / rms);
  }
  return out;
}

struct Mappings {
  Vec pre, post;
  Mat res;  // (to, from)
};

Mappings PaperMappings(const Vec& z, const Vec& alpha, const Vec& b, size_t n) {  // eq. 7-9
  Mappings m;
  for (size_t k = 0; k < n; ++k) m.pre.push_back(Logistic(alpha[0] * z[k] + b[k]));
  for (size_t k = 0; k < n; ++k) m.post.push_back(2 * Logistic(alpha[1] * z[n + k] + b[n + k]));
  m.res.assign(n, Vec(n));
  for (size_t j = 0; j < n; ++j) {
    for (size_t k = 0; k < n; ++k) {
      m.res[j][k] = std::exp(alpha[2] * z[2 * n + j * n + k] + b[2 * n + j * n + k]);
    }
  }
  for (int iteration = 0; iteration < 20; ++iteration) {
    for (size_t k = 0; k < n; ++k) {
      double column = 0;
      for (size_t j = 0; j < n; ++j) column += m.res[j][k];
      for (size_t j = 0; j < n; ++j) m.res[j][k] /= column;
    }
    for (size_t j = 0; j < n; ++j) {
      double row = 0;
      for (size_t k = 0; k < n; ++k) row += m.res[j][k];
      for (size_t k = 0; k < n; ++k) m.res[j][k] /= row;
    }
  }
  return m;
}

Mappings V4Mappings(const Vec& z, const Vec& scale, const Vec& base, size_t n, double eps) {
  Mappings m;
  for (size_t k = 0; k < n; ++k) m.pre.push_back(Logistic(scale[0] * z[k] + base[k]) + eps);
  for (size_t k = 0; k < n; ++k) m.post.push_back(2 * Logistic(scale[1] * z[n + k] + base[n + k]));
  Mat comb(n, Vec(n));  // [source][destination], as that code holds it
  for (size_t source = 0; source < n; ++source) {
    double total = 0;
    for (size_t to = 0; to < n; ++to) {
      const size_t at = 2 * n + to * n + source;
      total += comb[source][to] = std::exp(scale[2] * z[at] + base[at]);
    }
    for (size_t to = 0; to < n; ++to) comb[source][to] = comb[source][to] / total + eps;
  }
  const auto over_sources = [&] {
    for (size_t to = 0; to < n; ++to) {
      double sum = eps;
      for (size_t source = 0; source < n; ++source) sum += comb[source][to];
      for (size_t source = 0; source < n; ++source) comb[source][to] /= sum;
    }
  };
  const auto over_destinations = [&] {
    for (Vec& row : comb) {
      double sum = eps;
      for (const double v : row) sum += v;
      for (double& v : row) v /= sum;
    }
  };
  over_sources();
  for (int repeat = 0; repeat < 19; ++repeat) {
    over_destinations();
    over_sources();
  }
  m.res.assign(n, Vec(n));
  for (size_t j = 0; j < n; ++j) {
    for (size_t k = 0; k < n; ++k) m.res[j][k] = comb[k][j];
  }
  return m;
}

Mat ManifoldHyperConnections(const Model& model, int sites, size_t n, const std::string& form,
                             const std::string& collapse, const Vec& e) {
  const bool paper = form == "paper";
  Mat x(n, e), all;
  for (int l = 0; l < sites; ++l) {
    const std::string at = "sites." + std::to_string(l);
    const Vec z = Normalised(x, model.Get(at + ".projection.weight"), 1e-6);
    const Vec alpha = model.Get(at + ".scale"), b = model.Get(at + ".bias");
    const Mappings m = paper ? PaperMappings(z, alpha, b, n) : V4Mappings(z, alpha, b, n, 1e-6);
    Vec h(e.size(), 0.0);
    for (size_t k = 0; k < n; ++k) {
      for (size_t d = 0; d < h.size(); ++d) h[d] += m.pre[k] * x[k][d];
    }
    const Vec f = ToySublayer(l, h);
    Mat next(n, Vec(e.size(), 0.0));  // eq. 3
    for (size_t j = 0; j < n; ++j) {
      for (size_t d = 0; d < h.size(); ++d) {
        for (size_t k = 0; k < n; ++k) next[j][d] += m.res[j][k] * x[k][d];
        next[j][d] += m.post[j] * f[d];
      }
    }
    x = next;
    all.push_back(h);
  }
  Vec weight(n, collapse == "mean" ? 1.0 / static_cast<double>(n) : 1.0);
  if (collapse == "head") {
    const Vec z = Normalised(x, model.Get("head.projection.weight"), 1e-6);
    const double scale = model.Get("head.scale")[0];
    for (size_t k = 0; k < n; ++k) {
      weight[k] = Logistic(scale * z[k] + model.Get("head.bias")[k]) + (paper ? 0 : 1e-6);
    }
  }
  Vec out(e.size(), 0.0);
  for (size_t k = 0; k < n; ++k) {
    for (size_t d = 0; d < out.size(); ++d) out[d] += weight[k] * x[k][d];
  }
  all.push_back(out);
  return all;
}

TEST(ManifoldHyperConnections, ForwardIsThePapersAndTheV4CodesForEverySlotsDepthAndWidth) {
  for (const std::string form : {"paper", "v4"}) {
    for (const std::string collapse : {"mean", "sum", "head"}) {
      for (const int slots : {1, 2, 3, 4, 5, 8}) {
        for (const int sites : {1, 2, 5, 9}) {
          for (const int dim : {1, 3, 16, 17}) {
            const std::string spec = fmt::format("mhc:slots={},form={},collapse={}", slots, form, collapse);
            Model model(spec, sites, dim);
            model.Randomise(static_cast<uint64_t>(1000 * slots + 100 * sites + dim));
            const Vec e = RandomVec(dim, 6);
            ExpectClose(ManifoldHyperConnections(model, sites, static_cast<size_t>(slots), form, collapse, e),
                        model.Run(e, ToySublayer), fmt::format("{} sites {} dim {}", spec, sites, dim));
          }
        }
      }
    }
  }
}

TEST(ManifoldHyperConnections, WorkedExampleOfRepeatedMixingKeepsTheSum) {
  Model model("mhc:slots=2,form=paper", 4, 1);
  const double four = std::log(4);
  for (int s = 0; s < 4; ++s) {
    // Site 0 writes u = 1 twice to slot 0 only; the later ones mix with [[.8, .2], [.2, .8]].
    model.Set(fmt::format("sites.{}.bias", s), {0, 0, 50, -50, four, 0, 0, four});
  }
  model.Run({0}, [](int site, const Vec&) { return Vec{site == 0 ? 1.0 : 0.0}; });
  const Mat expected{{2, 0}, {1.6, .4}, {1.36, .64}, {1.216, .784}};
  for (int s = 1; s <= 4; ++s) {
    EXPECT_NEAR(model.Slot(s, 0)[0], expected[static_cast<size_t>(s - 1)][0], 1e-15) << s;
    EXPECT_NEAR(model.Slot(s, 1)[0], expected[static_cast<size_t>(s - 1)][1], 1e-15) << s;
  }
}

TEST(ManifoldHyperConnections, ParameterCountIsThePapers) {
  const auto mechanism = MakeMechanism<float>(ParseResidual("mhc"), 1, 2560);
  int64_t parameters = 0;
  for (const Parameter& p : mechanism->Parameters()) parameters += p.size();
  EXPECT_EQ(parameters, 245'787);
}

}  // namespace
}  // namespace strata
