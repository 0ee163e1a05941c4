// Hyper-connections, static and dynamic: arXiv 2409.19606.
#include "residual/papers_testing.h"

namespace strata {
namespace {

struct Form {
  bool dynamic = true, tanh = true, layer = true;
  double eps = 1e-5;
};

// Xn, row by row.
Mat Normed(const Mat& x, const Vec& gain, const Vec& bias, const Form& form) {
  Mat out = x;
  for (Vec& row : out) {
    double mean = 0, square = 0;
    if (form.layer) {
      for (const double v : row) mean += v / static_cast<double>(row.size());
    }
    for (const double v : row) square += (v - mean) * (v - mean) / static_cast<double>(row.size());
    for (size_t d = 0; d < row.size(); ++d) {
      row[d] = (row[d] - mean) / std::sqrt(square + form.eps) * gain[d] + (form.layer ? bias[d] : 0);
    }
  }
  return out;
}

// A_m, B and A_r^T: reads, writes and, in index order (to, from), how streams mix. The paper has A_r the
// other way round: row = the stream that is read.
struct Connection {
  Vec read, write;
  Mat mix;
  Mat term_mix;  // after tanh, before the scale
};

Connection Connect(const Model& model, const std::string& at, const Mat& x, const Form& form) {
  const size_t n = x.size(), d = x[0].size();
  Connection c{model.Get(at + "static.read"), model.Get(at + "static.write"), Mat(n, Vec(n)), Mat(n, Vec(n))};
  const Vec table = model.Get(at + "static.keep");
  Mat a_r(n, Vec(n));  // (from, to)
  for (size_t from = 0; from < n; ++from) {
    for (size_t to = 0; to < n; ++to) a_r[from][to] = table[to * n + from];
  }
  if (form.dynamic) {
    const Mat xn =
        Normed(x, model.Get(at + "norm.weight"), form.layer ? model.Get(at + "norm.bias") : Vec(), form);
    const auto bound = [&](double z) { return form.tanh ? std::tanh(z) : z; };
    const Vec w_m = model.Get(at + "dynamic.read"), w_b = model.Get(at + "dynamic.write"),
              w_r = model.Get(at + "dynamic.keep"), s = model.Get(at + "scale");
    for (size_t k = 0; k < n; ++k) {
      double m = 0, b = 0;
      Vec r(n, 0.0);
      for (size_t i = 0; i < d; ++i) {
        m += xn[k][i] * w_m[i];
        b += xn[k][i] * w_b[i];
        for (size_t to = 0; to < n; ++to) r[to] += xn[k][i] * w_r[i * n + to];
      }
      c.read[k] += s[0] * bound(m);
      c.write[k] += s[1] * bound(b);
      for (size_t to = 0; to < n; ++to) {
        a_r[k][to] += s[0] * bound(r[to]);
        c.term_mix[to][k] = bound(r[to]);
      }
    }
  }
  for (size_t to = 0; to < n; ++to) {
    for (size_t from = 0; from < n; ++from) c.mix[to][from] = a_r[from][to];
  }
  return c;
}

Vec HeadWeights(const Model& model, const Mat& x, const std::string& collapse, double eps) {
  const size_t n = x.size(), d = x[0].size();
  if (collapse != "head") return Vec(n, collapse == "sum" ? 1.0 : 1.0 / static_cast<double>(n));
  double square = 0;
  for (const Vec& row : x) {
    for (const double v : row) square += v * v / static_cast<double>(n * d);
  }
  const Vec w = model.Get("head.projection.weight"), bias = model.Get("head.bias");
  Vec weights(n);
  for (size_t m = 0; m < n; ++m) {
    double dot = 0;
    for (size_t k = 0; k < n; ++k) {
      for (size_t i = 0; i < d; ++i) dot += w[(m * n + k) * d + i] * x[k][i];
    }
    weights[m] = Logistic(model.Get("head.scale")[0] * dot / std::sqrt(square + eps) + bias[m]);
  }
  return weights;
}

Mat HyperConnections(const Model& model, int sites, size_t n, const Form& form, const std::string& collapse,
                     const Vec& e) {
  Mat x(n, e), all;
  for (int l = 0; l < sites; ++l) {
    const Connection c = Connect(model, fmt::format("sites.{}.", l), x, form);
    Vec h(e.size(), 0.0);
    for (size_t k = 0; k < n; ++k) {
      for (size_t d = 0; d < h.size(); ++d) h[d] += c.read[k] * x[k][d];
    }
    const Vec f = ToySublayer(l, h);
    Mat next(n, Vec(e.size(), 0.0));
    for (size_t to = 0; to < n; ++to) {
      for (size_t d = 0; d < h.size(); ++d) {
        for (size_t k = 0; k < n; ++k) next[to][d] += c.mix[to][k] * x[k][d];
        next[to][d] += c.write[to] * f[d];
      }
    }
    x = next;
    all.push_back(h);
  }
  const Vec weights = HeadWeights(model, x, collapse, form.eps);
  Vec out(e.size(), 0.0);
  for (size_t k = 0; k < n; ++k) {
    for (size_t d = 0; d < out.size(); ++d) out[d] += weights[k] * x[k][d];
  }
  all.push_back(out);
  return all;
}

TEST(HyperConnections, ForwardIsThePapersForEveryFormSlotsDepthAndWidth) {
  const std::pair<const char*, Form> forms[] = {{"", {}},
                                                {",tanh=false", {true, false, true, 1e-5}},
                                                {",norm=rms", {true, true, false, 1e-5}},
                                                {",norm=rms,tanh=false,eps=0.01", {true, false, false, 0.01}},
                                                {",dynamic=false", {false, false, false, 1e-5}}};
  for (const auto& [options, form] : forms) {
    for (const std::string collapse : {"sum", "mean", "head"}) {
      for (const int slots : {1, 2, 3, 4, 5, 8}) {
        for (const int sites : {1, 2, 5}) {
          for (const int dim : {1, 3, 16, 17}) {
            const std::string spec = fmt::format("hc:slots={},collapse={}{}", slots, collapse, options);
            Model model(spec, sites, dim);
            model.Randomise(static_cast<uint64_t>(1000 * slots + 100 * sites + dim));
            const Vec e = RandomVec(dim, 6);
            ExpectClose(HyperConnections(model, sites, static_cast<size_t>(slots), form, collapse, e),
                        model.Run(e, ToySublayer), fmt::format("{} sites {} dim {}", spec, sites, dim));
          }
        }
      }
    }
  }
}

TEST(HyperConnections, WhatIsInsideAreTheTermsAfterTanhBeforeTheScale) {
  Model model("hc:slots=3", 2, 5);
  model.Randomise(8);
  model.Run(RandomVec(5, 9), ToySublayer);
  Mat x;
  for (size_t k = 0; k < 3; ++k) x.push_back(model.Slot(1, k));
  const Connection c = Connect(model, "sites.1.", x, {});
  const auto inside = [&](int site) { return model.walker->Inside(site); };
  EXPECT_TRUE(inside(2).empty());
  const auto of_site = inside(1);
  ASSERT_EQ(of_site.size(), 3u);
  const Vec table = model.Get("sites.1.static.read"), scale = model.Get("sites.1.scale"),
            write_table = model.Get("sites.1.static.write");
  EXPECT_EQ(of_site[0].name, "dynamic.read");
  EXPECT_EQ(of_site[1].name, "dynamic.write");
  EXPECT_EQ(of_site[2].name, "dynamic.keep");
  EXPECT_EQ(of_site[0].shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(of_site[2].shape, (std::vector<int64_t>{3, 3}));
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_NEAR(of_site[0].values[k] * scale[0] + table[k], c.read[k], 1e-14);
    EXPECT_NEAR(of_site[1].values[k] * scale[1] + write_table[k], c.write[k], 1e-14);
    for (size_t from = 0; from < 3; ++from) {
      EXPECT_NEAR(of_site[2].values[k * 3 + from], c.term_mix[k][from], 1e-14);
    }
  }
}

// Site 0 makes the streams [2, 0] and [0, 2] out of e = [1, 1] and u = [1, -1].
TEST(HyperConnections, WorkedExampleOfTwoStreams) {
  Model model("hc:slots=2,dynamic=false", 2, 2);
  model.Set("sites.0.static.read", {1, 0});
  model.Set("sites.0.static.write", {1, -1});
  model.Set("sites.0.static.keep", {1, 0, 0, 1});
  model.Set("sites.1.static.read", {.75, .25});
  model.Set("sites.1.static.write", {1, .5});
  model.Set("sites.1.static.keep", {.8, .2, .2, .8});
  const Mat given{{1, -1}, {.4, -.2}};
  const Mat x = model.Run({1, 1}, [&](int site, const Vec&) { return given[static_cast<size_t>(site)]; });
  ExpectClose({{2, 0}, {0, 2}}, {model.Slot(1, 0), model.Slot(1, 1)}, "streams");
  ExpectClose({{1.5, .5}}, {x[1]}, "x");
  ExpectClose({{2, .2}, {.6, 1.5}}, {model.Slot(2, 0), model.Slot(2, 1)}, "next");
}

// keep is (to, from): 1 at [1, 0] alone moves stream 0 to stream 1.
TEST(HyperConnections, WorkedExamplesOfRepeatedMixing) {
  const auto mix = [](const Vec& keep) {
    Model model("hc:slots=2,dynamic=false", 4, 1);
    for (int s = 0; s < 4; ++s) {
      model.Set(fmt::format("sites.{}.static.write", s), {s == 0 ? 2.0 : 0.0, 0});
      model.Set(fmt::format("sites.{}.static.keep", s), keep);
    }
    model.Run({0}, [](int site, const Vec&) { return Vec{site == 0 ? 1.0 : 0.0}; });
    Mat all;
    for (int s = 1; s <= 4; ++s) all.push_back({model.Slot(s, 0)[0], model.Slot(s, 1)[0]});
    return all;
  };
  ExpectClose({{2, 0}, {2, 0}, {2, 0}, {2, 0}}, mix({1, 0, 0, 1}), "identity");
  ExpectClose({{2, 0}, {4, 0}, {8, 0}, {16, 0}}, mix({2, 0, 0, 2}), "doubling");
  ExpectClose({{2, 0}, {1.6, .4}, {1.36, .64}, {1.216, .784}}, mix({.8, .2, .2, .8}), "mixing");
  ExpectClose({{2, 0}, {0, 2}, {0, 0}, {0, 0}}, mix({0, 0, 1, 0}), "moving");
}

// DHC adds d (n + 2) + n^2 + 2n + 2 to a sublayer, beside the norm; SHC n^2 + 2n.
TEST(HyperConnections, ParameterCountsAreThePapers) {
  const auto count = [](const std::string& spec) {
    int64_t parameters = 0;
    const auto mechanism = MakeMechanism<float>(ParseResidual(spec), 1, 2048);
    for (const Parameter& p : mechanism->Parameters()) {
      if (p.name.find("norm") == std::string::npos) parameters += p.size();
    }
    return parameters;
  };
  EXPECT_EQ(count("hc"), 2048 * 6 + 16 + 8 + 2);
  EXPECT_EQ(count("hc:dynamic=false"), 16 + 8);
}

}  // namespace
}  // namespace strata
