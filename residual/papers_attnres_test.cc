// Attention Residuals, arXiv 2603.15031.
#include "residual/papers_testing.h"

namespace strata {
namespace {

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

// The ablations: sources as in the full form, other weights.
struct Ablation {
  std::string weights = "softmax", query = "learned";
  size_t heads = 1, window = 0;
  bool key_norm = true;
};

Vec AblatedMix(const Model& model, const std::string& at, const Mat& sources, const Ablation& a) {
  const size_t dim = sources[0].size(), width = dim / a.heads;
  const auto unit = [&](const Vec& v) {
    double square = 0;
    for (const double x : v) square += x * x;
    Vec n = v;
    for (double& x : n) x /= std::sqrt(square / static_cast<double>(dim) + 1e-6);
    return n;
  };
  Vec query(dim, 0.0), gain(dim, 1.0), h(dim, 0.0);
  if (a.weights != "static") {
    if (a.key_norm) gain = model.Get(at + ".norm.weight");
    if (a.query == "input") {
      const Vec w = model.Get(at + ".query.weight"), newest = unit(sources.back());
      for (size_t i = 0; i < w.size(); ++i) query[i / dim] += w[i] * newest[i % dim];
    } else {
      query = model.Get(at + ".query");
    }
  }
  for (size_t head = 0; head < a.heads; ++head) {
    Vec weight;
    double total = 0;
    for (size_t i = 0; i < sources.size(); ++i) {
      const bool seen = a.window == 0 || i == 0 || i + a.window >= sources.size();
      double score = 0;
      if (a.weights == "static") {
        score = model.Get(at + ".logits")[i];
      } else {
        const Vec key = a.key_norm ? unit(sources[i]) : sources[i];
        for (size_t d = head * width; d < (head + 1) * width; ++d) score += query[d] * gain[d] * key[d];
      }
      weight.push_back(!seen ? 0 : a.weights == "sigmoid" ? Logistic(score) : std::exp(score));
      total += weight.back();
    }
    for (size_t i = 0; i < sources.size(); ++i) {
      const double share = a.weights == "sigmoid" ? weight[i] : weight[i] / total;
      for (size_t d = head * width; d < (head + 1) * width; ++d) h[d] += share * sources[i][d];
    }
  }
  return h;
}

TEST(AttentionResiduals, AblationsAreTheirDefinitions) {
  const std::map<std::string, Ablation> ablations{
      {"weights=sigmoid", {.weights = "sigmoid"}},
      {"weights=static", {.weights = "static"}},
      {"weights=static,window=2", {.weights = "static", .window = 2}},
      {"query=input", {.query = "input"}},
      {"query=input,key-norm=false", {.query = "input", .key_norm = false}},
      {"heads=2", {.heads = 2}},
      {"heads=6", {.heads = 6}},
      {"heads=3,query=input", {.query = "input", .heads = 3}},
      {"heads=3,weights=sigmoid,window=1", {.weights = "sigmoid", .heads = 3, .window = 1}},
      {"window=1", {.window = 1}},
      {"window=3", {.window = 3}},
      {"key-norm=false", {.key_norm = false}},
  };
  for (const auto& [options, ablation] : ablations) {
    for (int sites = 1; sites <= 7; sites += 2) {
      for (const int dim : {6, 18}) {
        Model model("attnres:block=1," + options, sites, dim);
        model.Randomise(static_cast<uint64_t>(sites + dim));
        const Vec e = RandomVec(dim, 5);
        Mat sources{e}, all;
        for (int l = 0; l <= sites; ++l) {
          const std::string at = l < sites ? "sites." + std::to_string(l) : "head";
          all.push_back(AblatedMix(model, at, sources, ablation));
          if (l < sites) sources.push_back(ToySublayer(l, all.back()));
        }
        ExpectClose(all, model.Run(e, ToySublayer), fmt::format("{} sites {} dim {}", options, sites, dim));
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

}  // namespace
}  // namespace strata
