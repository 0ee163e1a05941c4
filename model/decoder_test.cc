// The whole model against a naive transcription in complex double arithmetic (standard residual), and the
// laws that must hold for every residual connection: cached logits, memory estimate, finite checks.
#include "model/decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <map>

#include "base/random.h"

namespace strata {
namespace {

using Complex = std::complex<double>;
using Row = std::vector<Complex>;
using Matrix = std::vector<Row>;

ModelConfig Tiny(const std::string& residual) {
  ModelConfig c;
  c.residual = residual;
  c.blocks = 2, c.dim = 8, c.heads = 4, c.kv_heads = 2, c.mlp = 12, c.vocab = 11, c.context = 7;
  c.Resolve();
  return c;
}

std::vector<int32_t> RandomTokens(int64_t n, int64_t vocab, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i)
    tokens.push_back(static_cast<int32_t>(random.Below(static_cast<uint64_t>(vocab))));
  return tokens;
}

// Every parameter random, so that nothing hides behind an initial zero or one.
void Randomise(ParameterSet* set, uint64_t seed) {
  Random random(seed);
  for (int64_t i = 0; i < set->total(); ++i) set->values()[i] = static_cast<float>(0.3 * random.Normal());
}

class Naive {
 public:
  Naive(const ModelConfig& config, ParameterSet* set) : c_(config) {
    for (int i = 0; i < set->count(); ++i) {
      tensors_[set->spec(i).name] = {set->value(i), set->value(i) + set->spec(i).size()};
    }
  }
  Row& operator[](const std::string& name) { return tensors_.at(name); }

  Complex Loss(const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets) {
    Matrix h;
    for (const int32_t t : tokens) h.push_back(Slice((*this)["embedding.weight"], t * c_.dim, c_.dim));
    for (int64_t b = 0; b < c_.blocks; ++b) {
      const std::string at = "blocks." + std::to_string(b) + ".";
      Add(&h, Attention(at + "attention.", h));
      Add(&h, Mlp(at + "mlp.", h));
    }
    Complex loss = 0;
    Row& table = (*this)[c_.head == "tied" ? "embedding.weight" : "head.weight"];
    for (size_t t = 0; t < h.size(); ++t) {
      if (targets[t] < 0) continue;
      const Row logits = Times(table, Norm(h[t], (*this)["norm.weight"]));
      Complex sum = 0;
      for (const Complex& z : logits) sum += std::exp(z);
      loss += std::log(sum) - logits[static_cast<size_t>(targets[t])];
    }
    return loss;
  }

 private:
  static Row Slice(const Row& v, int64_t from, int64_t n) { return {v.begin() + from, v.begin() + from + n}; }
  static void Add(Matrix* h, const Matrix& u) {
    for (size_t t = 0; t < u.size(); ++t) {
      for (size_t i = 0; i < u[t].size(); ++i) (*h)[t][i] += u[t][i];
    }
  }
  static Row Times(const Row& weight, const Row& x) {
    Row y(weight.size() / x.size(), 0.0);
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) y[o] += weight[o * x.size() + i] * x[i];
    }
    return y;
  }
  Row Norm(const Row& x, const Row& gain) const {
    Complex sq = 0;
    for (const Complex& v : x) sq += v * v;
    Row y = x;
    for (size_t i = 0; i < x.size(); ++i) {
      y[i] *= gain[i] / std::sqrt(sq / static_cast<double>(x.size()) + c_.norm_eps);
    }
    return y;
  }
  Row Rotated(Row v, double position) const {
    const size_t half = v.size() / 2;
    if (c_.positions == "none") return v;
    for (size_t i = 0; i < half; ++i) {
      const double angle = position * std::pow(10000.0, -2.0 * double(i) / double(v.size()));
      const Complex a = v[i], b = v[i + half];
      v[i] = a * std::cos(angle) - b * std::sin(angle);
      v[i + half] = a * std::sin(angle) + b * std::cos(angle);
    }
    return v;
  }
  Matrix Attention(const std::string& at, const Matrix& h) {
    const int64_t w = c_.head_dim(), heads = c_.heads, kv = c_.kv_heads;
    Matrix qkv, u;
    for (const Row& x : h)
      qkv.push_back(Times((*this)[at + "qkv.weight"], Norm(x, (*this)[at + "norm.weight"])));
    for (size_t t = 0; t < h.size(); ++t) {
      Row out;
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t g = head / (heads / kv);
        const Row q = Rotated(Slice(qkv[t], head * w, w), double(t));
        Complex sum = 0;
        Row mixed(static_cast<size_t>(w), 0.0);
        for (size_t j = 0; j <= t; ++j) {
          const Row k = Rotated(Slice(qkv[j], (heads + g) * w, w), double(j));
          const Row v = Slice(qkv[j], (heads + kv + g) * w, w);
          const Complex p = std::exp(Times(q, k)[0] / std::sqrt(double(w)));
          sum += p;
          for (size_t i = 0; i < v.size(); ++i) mixed[i] += p * v[i];
        }
        for (const Complex& m : mixed) out.push_back(m / sum);
      }
      u.push_back(Times((*this)[at + "output.weight"], out));
    }
    return u;
  }
  Matrix Mlp(const std::string& at, const Matrix& h) {
    Matrix u;
    for (const Row& x : h) {
      const Row wide = Times((*this)[at + "up.weight"], Norm(x, (*this)[at + "norm.weight"]));
      Row active;
      for (size_t i = 0; i < static_cast<size_t>(c_.mlp); ++i) {
        const Complex a = wide[i];
        if (c_.activation == "swiglu") {
          active.push_back(a / (1.0 + std::exp(-a)) * wide[i + static_cast<size_t>(c_.mlp)]);
        } else {
          active.push_back(0.5 * a * (1.0 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a))));
        }
      }
      u.push_back(Times((*this)[at + "down.weight"], active));
    }
    return u;
  }

  ModelConfig c_;
  std::map<std::string, Row> tensors_;
};

struct Shape {
  const char *activation, *positions, *head;
  int64_t kv_heads;
};
class WholeModel : public testing::TestWithParam<Shape> {};

TEST_P(WholeModel, LossAndEveryGradientMatchTheTranscription) {
  ModelConfig c = Tiny("standard");
  c.activation = GetParam().activation, c.positions = GetParam().positions, c.head = GetParam().head;
  c.kv_heads = GetParam().kv_heads;
  c.Resolve();
  const auto model = MakeDecoder(c, Precision::kF32);
  ParameterSet& set = model->parameters();
  Randomise(&set, 3);
  model->WeightsChanged();
  const std::vector<int32_t> tokens = RandomTokens(7, c.vocab, 1);
  std::vector<int32_t> targets = RandomTokens(7, c.vocab, 2);
  targets[3] = -1;
  Naive naive(c, &set);
  const double want = naive.Loss(tokens, targets).real();
  EXPECT_NEAR(model->TrainStep(tokens.data(), targets.data(), 1, 7, 0.5), want, 1e-5 * want);
  EXPECT_NEAR(model->Evaluate(tokens.data(), targets.data(), 1, 7), want, 1e-5 * want);
  Random random(4);
  for (int i = 0; i < set.count(); ++i) {
    Row& tensor = naive[set.spec(i).name];
    double scale = 0;
    std::vector<std::pair<int64_t, double>> probes;
    for (int probe = 0; probe < 12; ++probe) {
      const auto at = static_cast<int64_t>(random.Below(static_cast<uint64_t>(set.spec(i).size())));
      Complex& number = tensor[static_cast<size_t>(at)];
      const Complex before = number;
      number += Complex(0, 1e-30);
      probes.push_back({at, 0.5 * naive.Loss(tokens, targets).imag() / 1e-30});
      number = before;
      scale = std::max(scale, std::abs(probes.back().second));
    }
    for (const auto& [at, gradient] : probes) {
      EXPECT_NEAR(set.gradient(i)[at], gradient, 2e-5 * scale + 1e-7) << set.spec(i).name << " at " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bodies, WholeModel,
                         testing::Values(Shape{"swiglu", "rope", "tied", 2},
                                         Shape{"gelu", "rope", "separate", 4},
                                         Shape{"swiglu", "none", "tied", 1}));

std::vector<std::string> Specs() {
  std::vector<std::string> specs = MechanismNames();
  for (const char* more : {"attnres:block=1", "attnres:block=3", "attnres:query=input", "mhc:form=paper",
                           "hc:dynamic=false", "review:form=convex", "gated:head=mean"}) {
    specs.emplace_back(more);
  }
  return specs;
}

class EveryResidual : public testing::TestWithParam<std::string> {};

TEST_P(EveryResidual, CachedLogitsEqualUncached) {
  const ModelConfig c = Tiny(GetParam());
  const auto model = MakeDecoder(c, Precision::kF32);
  Randomise(&model->parameters(), 5);
  model->WeightsChanged();
  const std::vector<int32_t> tokens = RandomTokens(7, c.vocab, 6);
  std::vector<float> whole(7 * 11), step(11);
  model->Extend(model->NewCache(1).get(), tokens.data(), 7, true, whole.data());
  const auto cache = model->NewCache(1);
  for (size_t begin : {0u, 3u, 4u, 5u, 6u}) {  // a prefill of three tokens, then one at a time
    const int64_t n = begin == 0 ? 3 : 1;
    model->Extend(cache.get(), tokens.data() + begin, n, false, step.data());
    const size_t last = begin + static_cast<size_t>(n) - 1;
    for (size_t v = 0; v < 11; ++v) EXPECT_NEAR(step[v], whole[last * 11 + v], 2e-5) << "position " << last;
  }
  EXPECT_EQ(cache->length(), 7);
  EXPECT_THROW(model->Extend(cache.get(), tokens.data(), 1, false, step.data()), Error);
}

TEST_P(EveryResidual, LogitsAreThoseThatTheLossIsMadeOf) {
  const ModelConfig c = Tiny(GetParam());
  const auto model = MakeDecoder(c, Precision::kF32);
  Randomise(&model->parameters(), 7);
  model->WeightsChanged();
  const std::vector<int32_t> tokens = RandomTokens(7, c.vocab, 8), targets = RandomTokens(7, c.vocab, 9);
  std::vector<float> logits(7 * 11);
  model->Extend(model->NewCache(1).get(), tokens.data(), 7, true, logits.data());
  double want = 0;
  for (size_t t = 0; t < 7; ++t) {
    double sum = 0;
    for (size_t v = 0; v < 11; ++v) sum += std::exp(double(logits[t * 11 + v]));
    want += std::log(sum) - double(logits[t * 11 + static_cast<size_t>(targets[t])]);
  }
  EXPECT_NEAR(model->Evaluate(tokens.data(), targets.data(), 1, 7), want, 1e-4);
  EXPECT_NEAR(model->TrainStep(tokens.data(), targets.data(), 1, 7, 1.0), want, 1e-4);
}

TEST_P(EveryResidual, GradientsFollowTheLossInARandomDirection) {
  const ModelConfig c = Tiny(GetParam());
  const auto model = MakeDecoder(c, Precision::kF32);
  ParameterSet& set = model->parameters();
  Randomise(&set, 10);
  model->WeightsChanged();
  const std::vector<int32_t> tokens = RandomTokens(14, c.vocab, 11), targets = RandomTokens(14, c.vocab, 12);
  model->TrainStep(tokens.data(), targets.data(), 2, 7, 1.0);
  Random random(13);
  std::vector<float> direction(static_cast<size_t>(set.total())),
      start(set.values(), set.values() + set.total());
  double slope = 0;
  for (size_t i = 0; i < direction.size(); ++i) {
    direction[i] = static_cast<float>(random.Normal());
    slope += double(direction[i]) * set.gradients()[i];
  }
  double loss[2];
  for (int side = 0; side < 2; ++side) {
    for (size_t i = 0; i < start.size(); ++i)
      set.values()[i] = start[i] + (side == 0 ? 1e-3f : -1e-3f) * direction[i];
    model->WeightsChanged();
    loss[side] = model->Evaluate(tokens.data(), targets.data(), 2, 7);
  }
  EXPECT_NEAR((loss[0] - loss[1]) / 2e-3, slope, 5e-3 * std::abs(slope) + 2e-2);
}

TEST_P(EveryResidual, BFloat16ProductsStayNearF32) {
  const ModelConfig c = Tiny(GetParam());
  const std::vector<int32_t> tokens = RandomTokens(7, c.vocab, 14), targets = RandomTokens(7, c.vocab, 15);
  double loss[2], norm[2];
  for (int i = 0; i < 2; ++i) {
    const auto model = MakeDecoder(c, i == 0 ? Precision::kF32 : Precision::kBf16);
    model->parameters().Initialise(16);
    model->WeightsChanged();
    loss[i] = model->TrainStep(tokens.data(), targets.data(), 1, 7, 1.0);
    norm[i] = 0;
    for (int64_t p = 0; p < model->parameters().total(); ++p) {
      norm[i] += std::pow(double(model->parameters().gradients()[p]), 2);
    }
  }
  EXPECT_NE(loss[0], loss[1]);
  EXPECT_NEAR(loss[1], loss[0], 1e-2 * loss[0]);
  EXPECT_NEAR(norm[1], norm[0], 5e-2 * norm[0]);
}

TEST_P(EveryResidual, CountNeedsNoModelAndIsRight) {
  const ModelConfig c = Tiny(GetParam());
  int64_t residual = -1, named = 0;
  const auto model = MakeDecoder(c, Precision::kF32);
  EXPECT_EQ(CountParameters(c, &residual), model->parameters().total());
  for (int i = 0; i < model->parameters().count(); ++i) {
    if (model->parameters().spec(i).name.rfind("residual.", 0) == 0)
      named += model->parameters().spec(i).size();
  }
  EXPECT_EQ(residual, named);
}

INSTANTIATE_TEST_SUITE_P(Residuals, EveryResidual, testing::ValuesIn(Specs()), [](const auto& info) {
  std::string name = info.param;
  for (char& ch : name) ch = std::isalnum(static_cast<unsigned char>(ch)) ? ch : '_';
  return name;
});

TEST(Decoder, NamesTheFirstNonFiniteTensor) {
  const ModelConfig c = Tiny("standard");
  const auto model = MakeDecoder(c, Precision::kF32);
  model->parameters().Initialise(1);
  model->WeightsChanged();
  const std::vector<int32_t> tokens = RandomTokens(7, c.vocab, 17);
  model->TrainStep(tokens.data(), tokens.data(), 1, 7, 1.0);
  EXPECT_EQ(model->FirstNonFinite(), "");
  for (int i = 0; i < model->parameters().count(); ++i) {
    if (model->parameters().spec(i).name == "blocks.1.mlp.up.weight") model->parameters().value(i)[5] = NAN;
  }
  model->WeightsChanged();
  model->TrainStep(tokens.data(), tokens.data(), 1, 7, 1.0);
  EXPECT_EQ(model->FirstNonFinite(), "blocks.1.mlp.up.weight");
}

TEST(Decoder, RefusesTokensOutsideTheVocabulary) {
  const auto model = MakeDecoder(Tiny("standard"), Precision::kF32);
  const std::vector<int32_t> tokens = {11};
  EXPECT_THROW(model->Evaluate(tokens.data(), tokens.data(), 1, 1), Error);
}

}  // namespace
}  // namespace strata
