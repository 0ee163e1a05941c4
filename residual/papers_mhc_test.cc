// Manifold-constrained hyper-connections: arXiv 2512.24880, and the released code of DeepSeek-V4; mHC-lite
// and KromHC, which have the same frame.
#include <algorithm>

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

// read and write of mHC-lite and KromHC, which the two papers take from mHC without eps.
Mappings Gates(const Vec& z, const Vec& alpha, const Vec& b, size_t n) {
  Mappings m;
  for (size_t k = 0; k < n; ++k) m.pre.push_back(1 / (1 + std::exp(-(alpha[0] * z[k] + b[k]))));
  for (size_t k = 0; k < n; ++k) m.post.push_back(2 / (1 + std::exp(-(alpha[1] * z[n + k] + b[n + k]))));
  m.res.assign(n, Vec(n, 0.0));
  return m;
}

// Every way to finish a permutation, in lexicographic order.
void Enumerate(size_t n, std::vector<size_t>* prefix, std::vector<std::vector<size_t>>* all) {
  if (prefix->size() == n) return all->push_back(*prefix);
  for (size_t next = 0; next < n; ++next) {
    if (std::find(prefix->begin(), prefix->end(), next) != prefix->end()) continue;
    prefix->push_back(next);
    Enumerate(n, prefix, all);
    prefix->pop_back();
  }
}

Mappings LiteMappings(const Vec& z, const Vec& alpha, const Vec& b, size_t n) {
  Mappings m = Gates(z, alpha, b, n);
  std::vector<size_t> prefix;
  std::vector<std::vector<size_t>> permutations;
  Enumerate(n, &prefix, &permutations);
  double total = 0;
  for (size_t i = 0; i < permutations.size(); ++i) {
    const double weight = std::exp(alpha[2] * z[2 * n + i] + b[2 * n + i]);
    total += weight;
    for (size_t to = 0; to < n; ++to) m.res[to][permutations[i][to]] += weight;
  }
  for (Vec& row : m.res) {
    for (double& v : row) v /= total;
  }
  return m;
}

Mappings KromMappings(const Vec& z, const Vec& alpha, const Vec& b, size_t n) {
  Mappings m = Gates(z, alpha, b, n);
  Mat whole{{1}};
  for (size_t at = 2 * n; whole.size() < n; at += 2) {
    const double same = std::exp(alpha[2] * z[at] + b[at]), swap = std::exp(alpha[2] * z[at + 1] + b[at + 1]);
    const Mat factor{{same / (same + swap), swap / (same + swap)},
                     {swap / (same + swap), same / (same + swap)}};
    const size_t size = whole.size();
    Mat next(2 * size, Vec(2 * size));
    for (size_t i = 0; i < 2; ++i) {
      for (size_t j = 0; j < 2; ++j) {
        for (size_t r = 0; r < size; ++r) {
          for (size_t c = 0; c < size; ++c) next[i * size + r][j * size + c] = factor[i][j] * whole[r][c];
        }
      }
    }
    whole = next;
  }
  m.res = whole;
  return m;
}

Mappings MappingsOf(const std::string& form, const Vec& z, const Vec& alpha, const Vec& b, size_t n) {
  if (form == "mhc:form=paper") return PaperMappings(z, alpha, b, n);
  if (form == "mhc:form=v4") return V4Mappings(z, alpha, b, n, 1e-6);
  return form == "krom:norm-eps=1e-6" ? KromMappings(z, alpha, b, n) : LiteMappings(z, alpha, b, n);
}

Mat ManifoldHyperConnections(const Model& model, int sites, size_t n, const std::string& form,
                             const std::string& collapse, const Vec& e) {
  Mat x(n, e), all;
  for (int l = 0; l < sites; ++l) {
    const std::string at = "sites." + std::to_string(l);
    const Vec z = Normalised(x, model.Get(at + ".projection.weight"), 1e-6);
    const Vec alpha = model.Get(at + ".scale"), b = model.Get(at + ".bias");
    const Mappings m = MappingsOf(form, z, alpha, b, n);
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
      weight[k] = Logistic(scale * z[k] + model.Get("head.bias")[k]) + (form == "mhc:form=v4" ? 1e-6 : 0);
    }
  }
  Vec out(e.size(), 0.0);
  for (size_t k = 0; k < n; ++k) {
    for (size_t d = 0; d < out.size(); ++d) out[d] += weight[k] * x[k][d];
  }
  all.push_back(out);
  return all;
}

void CheckForward(const std::string& form, const std::vector<int>& all_slots) {
  for (const std::string collapse : {"mean", "sum", "head"}) {
    for (const int slots : all_slots) {
      for (const int sites : {1, 2, 5, 9}) {
        for (const int dim : {1, 3, 16, 17}) {
          const std::string spec = fmt::format("{},slots={},collapse={}", form, slots, collapse);
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

TEST(ManifoldHyperConnections, ForwardIsThePapersAndTheV4CodesForEverySlotsDepthAndWidth) {
  for (const char* form : {"mhc:form=paper", "mhc:form=v4"}) CheckForward(form, {1, 2, 3, 4, 5, 8});
}

TEST(MhcLite, ForwardIsTheMixtureOfAllPermutationsForEverySlotsDepthAndWidth) {
  CheckForward("mhc-lite:norm-eps=1e-6", {1, 2, 3, 4, 5});
}

TEST(KromHc, ForwardIsTheKroneckerProductForEverySlotsDepthAndWidth) {
  CheckForward("krom:norm-eps=1e-6", {1, 2, 4, 8, 16});
}

// A permutation alone (its bias large) takes slot p(to) to slot `to`.
TEST(MhcLite, TheFourthPermutationOfThreeIsTheCycleThatReadsFromTheNext) {
  Model model("mhc-lite:slots=3", 2, 1);
  // Site 0 writes u = 1 twice to slot 0 only; site 1 moves: (1, 2, 0) is number 3.
  model.Set("sites.0.bias", {0, 0, 0, 50, -50, -50, 60, 0, 0, 0, 0, 0});
  model.Set("sites.1.bias", {0, 0, 0, -50, -50, -50, 0, 0, 0, 60, 0, 0});
  model.Run({0}, [](int site, const Vec&) { return Vec{site == 0 ? 1.0 : 0.0}; });
  for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(model.Slot(1, k)[0], k == 0 ? 2 : 0, 1e-15);
  for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(model.Slot(2, k)[0], k == 2 ? 2 : 0, 1e-15);
}

// Factor 0 swaps neighbours, factor 1 swaps halves.
TEST(KromHc, FactorZeroIsTheFastestMovingIndex) {
  Model model("krom", 3, 1);
  model.Set("sites.0.bias", {0, 0, 0, 0, 50, -50, -50, -50, 60, 0, 60, 0});
  model.Set("sites.1.bias", {0, 0, 0, 0, -50, -50, -50, -50, 0, 60, 60, 0});
  model.Set("sites.2.bias", {0, 0, 0, 0, -50, -50, -50, -50, 60, 0, 0, 60});
  model.Run({0}, [](int site, const Vec&) { return Vec{site == 0 ? 1.0 : 0.0}; });
  const size_t at[] = {0, 1, 3};
  for (int s = 1; s <= 3; ++s) {
    for (size_t k = 0; k < 4; ++k) EXPECT_NEAR(model.Slot(s, k)[0], k == at[s - 1] ? 2 : 0, 1e-15) << s << k;
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

int64_t Count(const std::string& spec, int sites, int64_t dim) {
  int64_t parameters = 0;
  const auto mechanism = MakeMechanism<float>(ParseResidual(spec), sites, dim);
  for (const Parameter& p : mechanism->Parameters()) parameters += p.size();
  return parameters;
}

TEST(ManifoldHyperConnections, ParameterCountsAreThePapers) {
  EXPECT_EQ(Count("mhc", 1, 2560), 245'787);
  // The KromHC paper's table counts a gain of n C numbers, too, which there is not here.
  EXPECT_EQ(Count("mhc", 24, 768) + 24 * 4 * 768, 1'843'848);
  EXPECT_EQ(Count("mhc-lite", 24, 768) + 24 * 4 * 768, 2'433'864);
  EXPECT_EQ(Count("krom", 24, 768) + 24 * 4 * 768, 958'824);
}

TEST(ManifoldHyperConnections, WhatIsInsideIsTheNormalisedProjectionAndTheLogits) {
  for (const std::string spec : {"mhc:collapse=head", "mhc-lite:collapse=head", "krom:collapse=head"}) {
    Model model(spec, 2, 5);
    model.Randomise(3);
    model.Run(RandomVec(5, 7), ToySublayer);
    for (int s = 0; s <= 2; ++s) {
      const std::string at = s < 2 ? fmt::format("sites.{}.", s) : "head.";
      Mat streams;
      for (size_t k = 0; k < 4; ++k) streams.push_back(model.Slot(s, k));
      const Vec z = Normalised(streams, model.Get(at + "projection.weight"), 1e-6);
      const Vec scale = model.Get(at + "scale"), bias = model.Get(at + "bias");
      Vec logits;
      for (size_t m = 0; m < z.size(); ++m)
        logits.push_back(scale[std::min<size_t>(m / 4, 2)] * z[m] + bias[m]);
      const auto inside = model.walker->Inside(s);
      ASSERT_EQ(inside.size(), 2u) << spec;
      EXPECT_EQ(inside[0].name, "logits");
      EXPECT_EQ(inside[1].name, "projection");
      EXPECT_EQ(inside[0].shape, std::vector<int64_t>{static_cast<int64_t>(z.size())});
      ExpectClose({logits, z}, {inside[0].values, inside[1].values}, spec);
    }
  }
}

}  // namespace
}  // namespace strata
