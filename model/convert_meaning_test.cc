#include <gtest/gtest.h>

#include "model/convert_testing.h"
#include "residual/papers_testing.h"

// A converted checkpoint must compute what the released model's own code computes. That code is written out
// here from its description, in its index order and under its names.
namespace strata {
namespace {

constexpr size_t kSlots = kN, kWidth = kD;

Vec Scaled(double factor, Vec v) {
  for (double& x : v) x *= factor;
  return v;
}
Vec Sum(Vec a, const Vec& b) {
  for (size_t d = 0; d < a.size(); ++d) a[d] += b[d];
  return a;
}
double Dot(const Vec& a, const Vec& b) {
  double sum = 0;
  for (size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}
double InverseRms(const Vec& v, double eps) {
  return 1 / std::sqrt(Dot(v, v) / static_cast<double>(v.size()) + eps);
}
// Row `row` of a matrix as wide as v, times v.
double RowTimes(const Vec& matrix, size_t row, const Vec& v) {
  const Vec one(matrix.begin() + static_cast<std::ptrdiff_t>(row * v.size()),
                matrix.begin() + static_cast<std::ptrdiff_t>((row + 1) * v.size()));
  return Dot(one, v);
}
Vec Flat(const Mat& streams) {
  Vec flat;
  for (const Vec& s : streams) flat.insert(flat.end(), s.begin(), s.end());
  return flat;
}

class ConvertMeaningTest : public ConvertTest {
 protected:
  Vec Get(const std::string& name) const { return ValuesOf(theirs_.at(name)); }
  // What every site and the head read in strata, with the mechanism and the weights of the converted file.
  Mat Converted(const std::string& layout, const std::string& config, const Vec& embedding) {
    Write("model/model.safetensors", theirs_);
    Put("model/config.json", config);
    const ConvertResult result = Do(From(layout, "model"));
    Model model(result.residual, static_cast<int>(result.sites), static_cast<int>(result.sizes.dim));
    for (const auto& [name, tensor] : Read("ours")) model.Set(name.substr(9), ValuesOf(tensor));
    return model.Run(embedding, ToySublayer);
  }
  Tensors theirs_;
};

// DeepSeek-V4: comb[source][destination], rows first, columns last.
TEST_F(ConvertMeaningTest, DeepSeekV4) {
  constexpr double kEps = 2e-3, kNormEps = 5e-3;
  constexpr int kIterations = 3;
  theirs_ = DeepSeek(3, "F32");
  const Vec embedding = RandomVec(kD, 11);
  const auto mixes = [&](const std::string& name, const Vec& flat) {
    const Vec fn = Get(name + "fn"), base = Get(name + "base"), scale = Get(name + "scale");
    Vec m(base.size());
    for (size_t i = 0; i < m.size(); ++i) {
      const size_t group = std::min(i / kSlots, scale.size() - 1);
      m[i] = RowTimes(fn, i, flat) * InverseRms(flat, kNormEps) * scale[group] + base[i];
    }
    return m;
  };
  Mat streams(kSlots, embedding), reads;
  for (int site = 0; site < 6; ++site) {
    const Vec m =
        mixes(fmt::format("layers.{}.hc_{}_", site / 2, site % 2 == 0 ? "attn" : "ffn"), Flat(streams));
    Vec x(kWidth, 0.0);
    for (size_t i = 0; i < kSlots; ++i) x = Sum(x, Scaled(Logistic(m[i]) + kEps, streams[i]));
    Mat comb(kSlots, Vec(kSlots));
    for (size_t src = 0; src < kSlots; ++src) {
      double sum = 0;
      for (size_t dst = 0; dst < kSlots; ++dst) sum += std::exp(m[2 * kSlots + src * kSlots + dst]);
      for (size_t dst = 0; dst < kSlots; ++dst) {
        comb[src][dst] = std::exp(m[2 * kSlots + src * kSlots + dst]) / sum + kEps;
      }
    }
    for (int iteration = 0; iteration < kIterations; ++iteration) {
      for (size_t src = 0; src < kSlots && iteration > 0; ++src) {
        double sum = kEps;
        for (size_t dst = 0; dst < kSlots; ++dst) sum += comb[src][dst];
        for (size_t dst = 0; dst < kSlots; ++dst) comb[src][dst] /= sum;
      }
      for (size_t dst = 0; dst < kSlots; ++dst) {
        double sum = kEps;
        for (size_t src = 0; src < kSlots; ++src) sum += comb[src][dst];
        for (size_t src = 0; src < kSlots; ++src) comb[src][dst] /= sum;
      }
    }
    reads.push_back(x);
    const Vec f = ToySublayer(site, x);
    Mat next;
    for (size_t dst = 0; dst < kSlots; ++dst) {
      next.push_back(Scaled(2 * Logistic(m[kSlots + dst]), f));
      for (size_t src = 0; src < kSlots; ++src)
        next[dst] = Sum(next[dst], Scaled(comb[src][dst], streams[src]));
    }
    streams = next;
  }
  const Vec w = mixes("hc_head_", Flat(streams));
  Vec head(kWidth, 0.0);
  for (size_t i = 0; i < kSlots; ++i) head = Sum(head, Scaled(Logistic(w[i]) + kEps, streams[i]));
  reads.push_back(head);
  ExpectClose(reads,
              Converted("deepseek-v4",
                        R"({"hc_mult": 3, "hc_sinkhorn_iters": 3, "hc_eps": 0.002, "rms_norm_eps": 0.005})",
                        embedding),
              "deepseek-v4");
}

// Kimi K3: decoder layer by decoder layer, with a bank of snapshots and a running sum.
TEST_F(ConvertMeaningTest, KimiK3) {
  constexpr double kEps = 1e-3;
  constexpr int kBlock = 2;  // decoder layers
  theirs_ = Kimi(5, "F32");
  const Vec embedding = RandomVec(kD, 12);
  Mat bank, reads;
  Vec sum = embedding;
  const auto read = [&](const std::string& name) {
    const Vec gain = Get("model." + name + "_norm.weight"), proj = Get("model." + name + "_proj.weight");
    Mat sources = bank;
    if (!sum.empty()) sources.push_back(sum);
    Vec weights;
    double total = 0;
    for (const Vec& v : sources) {
      double score = 0;
      for (size_t d = 0; d < v.size(); ++d) score += proj[d] * gain[d] * v[d] * InverseRms(v, kEps);
      weights.push_back(std::exp(score));
      total += weights.back();
    }
    Vec mixed(kWidth, 0.0);
    for (size_t i = 0; i < sources.size(); ++i) mixed = Sum(mixed, Scaled(weights[i] / total, sources[i]));
    return mixed;
  };
  for (int layer = 0; layer < 5; ++layer) {
    reads.push_back(layer == 0 ? embedding : read(fmt::format("layers.{}.self_attention_res", layer)));
    if (layer % kBlock == 0) bank.push_back(std::exchange(sum, {}));
    const Vec attention = ToySublayer(2 * layer, reads.back());
    sum = sum.empty() ? attention : Sum(sum, attention);
    reads.push_back(read(fmt::format("layers.{}.mlp_res", layer)));
    sum = Sum(sum, ToySublayer(2 * layer + 1, reads.back()));
  }
  reads.push_back(read("output_attn_res"));
  ExpectClose(reads, Converted("kimi-k3", R"({"attn_res_block_size": 2, "rms_norm_eps": 0.001})", embedding),
              "kimi-k3");
}

// Gated Residual: zero-centred gain, gates of every channel, one write gate a branch.
TEST_F(ConvertMeaningTest, QwenGr) {
  constexpr double kEps = 1e-3;
  theirs_ = Qwen(2, "F32");
  const Vec embedding = RandomVec(kD, 13);
  Mat branches(kSlots, embedding), reads;
  const double n = kN;
  for (int site = 0; site <= 4; ++site) {
    const std::string name = site == 4 ? "model.hyper_connection_mixer."
                                       : fmt::format("model.layers.{}.{}_hyper_connection.", site / 2,
                                                     site % 2 == 0 ? "attn" : "mlp");
    const Vec norm = Get(name + "hc_norm.weight"), down = Get(name + "input_mix_weight_down.weight"),
              up = Get(name + "input_mix_weight_up.weight");
    Vec flat;
    for (size_t i = 0; i < kSlots; ++i) {
      for (size_t d = 0; d < kWidth; ++d) {
        flat.push_back((1 + norm[i * kWidth + d]) * branches[i][d] * InverseRms(branches[i], kEps));
      }
    }
    Vec low;
    for (size_t r = 0; r < kR; ++r) {
      const double a = RowTimes(down, r, flat) / n;
      low.push_back(a * Logistic(a));
    }
    Vec x(kWidth, 0.0);
    for (size_t j = 0; j < flat.size(); ++j) x[j % kWidth] += Logistic(RowTimes(up, j, low)) * flat[j] / n;
    reads.push_back(x);
    if (site == 4) break;
    const Vec inject = Get(name + "block_inject_weight.weight"), y = ToySublayer(site, x);
    for (size_t i = 0; i < kSlots; ++i) {
      branches[i] = Sum(branches[i], Scaled(2 * Logistic(RowTimes(inject, i, flat) / n), y));
    }
  }
  ExpectClose(reads,
              Converted("qwen-gr", R"({"text_config": {"hc_count": 3, "rms_norm_eps": 0.001}})", embedding),
              "qwen-gr");
}

}  // namespace
}  // namespace strata
