// The papers' equations, transcribed on their own in plain double loops: nothing here comes from the library
// but the walker and the mechanisms under test.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "residual/walker.h"

namespace strata {
namespace {

using Vec = std::vector<double>;
using Mat = std::vector<Vec>;
using Sublayer = std::function<Vec(int site, const Vec& x)>;

Vec ToySublayer(int site, const Vec& x) {
  Vec u(x.size());
  for (size_t d = 0; d < x.size(); ++d) {
    u[d] = 1.5 * std::tanh(0.7 * x[d] + (0.3 + 0.1 * site) * x[(d + 1) % x.size()] - 0.1);
  }
  return u;
}

// The mechanism under test and its parameters by name; runs one token.
struct Model {
  Model(const std::string& spec, int sites, int dim)
      : mechanism(MakeMechanism<double>(ParseResidual(spec), sites, dim)) {
    int64_t offset = 0;
    for (const Parameter& p : mechanism->Parameters()) {
      offsets[p.name] = {offset, p.size()};
      offset += p.size();
    }
    values.assign(static_cast<size_t>(offset), 0.0);
  }
  void Set(const std::string& name, const Vec& value) {
    const auto [offset, size] = offsets.at(name);
    ASSERT_EQ(static_cast<size_t>(size), value.size()) << name;
    std::copy(value.begin(), value.end(), values.begin() + offset);
  }
  // Random numbers of a size that lets every gate and norm matter.
  void Randomise(uint64_t seed) {
    Random random(seed);
    for (double& v : values) v = 0.8 * random.Normal();
  }
  Vec Get(const std::string& name) const {
    const auto [offset, size] = offsets.at(name);
    return {values.begin() + offset, values.begin() + offset + size};
  }
  // x of every site, then what the head reads.
  Mat Run(const Vec& e, const Sublayer& sublayer) {
    walker = std::make_unique<Walker<double>>(*mechanism, Walker<double>::Mode::kTrain);
    Mat all;
    const double* x = walker->Begin(values.data(), e.data(), 1);
    for (int s = 0; s <= mechanism->sites(); ++s) {
      all.emplace_back(x, x + e.size());
      if (s == mechanism->sites()) break;
      const Vec u = sublayer(s, all.back());
      std::copy(u.begin(), u.end(), walker->update());
      x = walker->Next();
    }
    return all;
  }
  Vec Slot(int site, size_t k) const {
    const double* slot = walker->state(site).slots.at(k);
    return {slot, slot + mechanism->dim()};
  }
  std::unique_ptr<Mechanism<double>> mechanism;
  std::map<std::string, std::pair<int64_t, int64_t>> offsets;
  Vec values;
  std::unique_ptr<Walker<double>> walker;
};

void ExpectClose(const Mat& expected, const Mat& actual, const std::string& where) {
  ASSERT_EQ(expected.size(), actual.size()) << where;
  for (size_t s = 0; s < expected.size(); ++s) {
    double scale = 0;
    for (const double v : expected[s]) scale = std::max(scale, std::abs(v));
    for (size_t d = 0; d < expected[s].size(); ++d) {
      EXPECT_NEAR(expected[s][d], actual[s][d], 1e-12 * scale) << where << " site " << s << " channel " << d;
    }
  }
}

Vec RandomVec(int dim, uint64_t seed) {
  Random random(seed);
  Vec v(static_cast<size_t>(dim));
  for (double& x : v) x = 2 * random.Normal();
  return v;
}

// ---- arXiv 2603.15031, Attention Residuals
// -----------------------------------------------------------------

Vec AttentionMix(const Mat& sources, const Vec& query, const Vec& gain, double eps) {
  Vec weight;
  double total = 0;
  for (const Vec& v : sources) {
    double square = 0, score = 0;
    for (const double x : v) square += x * x;
    const double root = std::sqrt(square / static_cast<double>(v.size()) + eps);
    for (size_t d = 0; d < v.size(); ++d) score += query[d] * (gain[d] * (v[d] / root));
    weight.push_back(std::exp(score));
    total += weight.back();
  }
  Vec h(query.size(), 0.0);
  for (size_t i = 0; i < sources.size(); ++i) {
    for (size_t d = 0; d < h.size(); ++d) h[d] += weight[i] / total * sources[i][d];
  }
  return h;
}

// The state machine of the block form: a bank of finished blocks and a part that may not exist yet.
Mat BlockAttentionResiduals(const Model& model, int sites, int block, const Vec& e,
                            std::vector<size_t>* counts) {
  const auto mix = [&](const Mat& sources, const std::string& at) {
    if (counts != nullptr) counts->push_back(sources.size());
    return AttentionMix(sources, model.Get(at + ".query"), model.Get(at + ".norm.weight"), 1e-6);
  };
  Mat bank{e}, all;
  Vec part;
  for (int l = 0; l < sites; ++l) {
    if (l > 0 && l % block == 0) {
      bank.push_back(part);
      part.clear();
    }
    Mat sources = bank;
    if (!part.empty()) sources.push_back(part);
    all.push_back(mix(sources, "sites." + std::to_string(l)));
    const Vec y = ToySublayer(l, all.back());
    if (part.empty()) part.assign(y.size(), 0.0);
    for (size_t d = 0; d < y.size(); ++d) part[d] += y[d];
  }
  Mat sources = bank;
  sources.push_back(part);
  all.push_back(mix(sources, "head"));
  return all;
}

TEST(AttentionResiduals, ForwardIsThePapersForEveryDepthBlockAndWidth) {
  for (int sites = 1; sites <= 9; ++sites) {
    for (int block = 1; block <= sites + 1; ++block) {
      for (const int dim : {1, 3, 16, 17}) {
        Model model("attnres:block=" + std::to_string(block), sites, dim);
        model.Randomise(static_cast<uint64_t>(100 * sites + 10 * block + dim));
        const Vec e = RandomVec(dim, 5);
        ExpectClose(BlockAttentionResiduals(model, sites, block, e, nullptr), model.Run(e, ToySublayer),
                    fmt::format("sites {} block {} dim {}", sites, block, dim));
      }
    }
  }
}

TEST(AttentionResiduals, EverySiteSeesAsManySourcesAsThePapersStateMachine) {
  for (int sites = 1; sites <= 13; ++sites) {
    for (int block = 1; block <= sites + 2; ++block) {
      Model model("attnres:block=" + std::to_string(block), sites, 1);
      model.Randomise(1);
      std::vector<size_t> counts;
      BlockAttentionResiduals(model, sites, block, {1.0}, &counts);
      for (int l = 0; l <= sites; ++l) {
        const int by_formula =
            l < sites ? l / block + 1 + (l % block != 0 ? 1 : 0) : (sites + block - 1) / block + 1;
        EXPECT_EQ(model.mechanism->At(l).slots, by_formula)
            << "L " << sites << " S " << block << " site " << l;
        EXPECT_EQ(counts[static_cast<size_t>(l)], static_cast<size_t>(by_formula));
      }
    }
  }
}

TEST(AttentionResiduals, PublishedConfigurationsHaveTheirSourcesAndParameters) {
  const auto slots_at_head = [](const std::string& spec, int sites) {
    return MakeMechanism<float>(ParseResidual(spec), sites, 4)->At(sites).slots;
  };
  EXPECT_EQ(slots_at_head("attnres:block=6", 54), 10);
  EXPECT_EQ(slots_at_head("attnres:block=24", 186), 9);  // Kimi K3
  EXPECT_EQ(slots_at_head("attnres", 24), 9);            // the default makes 8 blocks
  int64_t parameters = 0;
  const auto k3 = MakeMechanism<float>(ParseResidual("attnres:block=24"), 186, 7168);
  for (const Parameter& p : k3->Parameters()) parameters += p.size();
  EXPECT_EQ(parameters, 2'680'832);
}

TEST(AttentionResiduals, WorkedExampleReadsUnnormalisedSourcesByTheirScores) {
  const Mat given{{0, 4, 0}, {0, 0, 6}};
  Model model("attnres:block=1,eps=0", 2, 3);
  for (const char* at : {"sites.0", "sites.1", "head"})
    model.Set(at + std::string(".norm.weight"), {1, 1, 1});
  const auto constant = [&](int site, const Vec&) { return given[static_cast<size_t>(site)]; };
  ExpectClose({{2, 0, 0}, {1, 2, 0}, {2.0 / 3, 4.0 / 3, 2}}, model.Run({2, 0, 0}, constant), "equal weights");
  model.Set("head.query", {0, std::log(2) / std::sqrt(3), 0});
  ExpectClose({{2, 0, 0}, {1, 2, 0}, {.5, 2, 1.5}}, model.Run({2, 0, 0}, constant), "1/4, 1/2, 1/4");
  model.Set("head.query", {std::log(2) / std::sqrt(3), 0, 0});
  ExpectClose({{2, 0, 0}, {1, 2, 0}, {1, 1, 1.5}}, model.Run({2, 0, 0}, constant), "1/2, 1/4, 1/4");
}

TEST(AttentionResiduals, WorkedExampleSumsInsideBlocksOnly) {
  const auto constant = [](int site, const Vec&) {
    return Vec{1.0 * (site == 0), 1.0 * (site == 1), site - 1.0};
  };
  Model model("attnres:block=2", 4, 3);
  model.Run({5, 0, 0}, constant);
  const auto slots = [&](int site) {
    Mat all;
    for (int k = 0; k < model.mechanism->At(site).slots; ++k)
      all.push_back(model.Slot(site, static_cast<size_t>(k)));
    return all;
  };
  EXPECT_EQ(slots(1), (Mat{{5, 0, 0}, {1, 0, -1}}));
  EXPECT_EQ(slots(2), (Mat{{5, 0, 0}, {1, 1, -1}}));  // the first of a block: finished blocks only
  EXPECT_EQ(slots(3), (Mat{{5, 0, 0}, {1, 1, -1}, {0, 0, 1}}));
  EXPECT_EQ(slots(4), (Mat{{5, 0, 0}, {1, 1, -1}, {0, 0, 3}}));
}

// ---- arXiv 2512.24880, mHC, and the code of DeepSeek-V4
// ----------------------------------------------------

double Logistic(double z) { return 1 / (1 + std::exp(-z)); }

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

TEST(Standard, ReadsTheSumOfTheEmbeddingAndAllUpdates) {
  const Mat given{{0, 4, 0}, {0, 0, 6}};
  Model model("standard", 2, 3);
  const Mat all =
      model.Run({2, 0, 0}, [&](int site, const Vec&) { return given[static_cast<size_t>(site)]; });
  EXPECT_EQ(all, (Mat{{2, 0, 0}, {2, 4, 0}, {2, 4, 6}}));
}

}  // namespace
}  // namespace strata
