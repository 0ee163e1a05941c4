#include "model/decoder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/loss_head.h"
#include "model/sublayers.h"
#include "ops/matmul.h"
#include "residual/walker.h"

namespace strata {

Precision ParsePrecision(const std::string& text) {
  if (text == "f32") return Precision::kF32;
  if (text == "bf16") return Precision::kBf16;
  if (text == "auto") return Precision::kAuto;
  FailUsage("--precision: expected f32, bf16 or auto, got {}", text);
}

Precision ResolvePrecision(Precision precision) {
  if (precision != Precision::kAuto) return precision;
  return Bf16IsFast() ? Precision::kBf16 : Precision::kF32;
}

const char* ToString(Precision precision) {
  return precision == Precision::kF32 ? "f32" : precision == Precision::kBf16 ? "bf16" : "auto";
}

namespace {

std::unique_ptr<Mechanism<float>> MechanismOf(const ModelConfig& config) {
  return MakeMechanism<float>(ParseResidual(config.residual), config.sites(), config.dim);
}

int AddEmbedding(const ModelConfig& config, ParameterSet* parameters) {
  return parameters->Add(
      {"embedding.weight", {config.vocab, config.dim}, {Init::Kind::kNormal, 0.02, {}}, true});
}

template <class E>
class Body : public Decoder {
 public:
  explicit Body(const ModelConfig& config);

  double TrainStep(const int32_t* tokens, const int32_t* targets, int64_t batch, int64_t length,
                   double scale) override;
  double Evaluate(const int32_t* tokens, const int32_t* targets, int64_t batch, int64_t length,
                  float* losses) override;
  void WeightsChanged() override { weights_.MarkStale(); }
  std::unique_ptr<Cache> NewCache(int64_t batch) override;
  void Extend(Cache* cache, const int32_t* tokens, int64_t length, bool all_positions,
              float* logits) override;
  SiteMagnitudes Magnitudes() const override { return magnitudes_; }
  Health ResidualHealth() override { return MeasureHealth(*mechanism_, training_); }
  std::string FirstNonFinite() override;

  static int64_t Bytes(const ModelConfig& config, int64_t batch, int64_t length, int64_t parameters);

 private:
  struct BlockSaved {
    typename AttentionSublayer<E>::Saved attention;
    typename MlpSublayer<E>::Saved mlp;
  };
  struct KeyValueCache : Cache {
    int64_t batch = 0;
    std::vector<KeyValues<E>> blocks;
    int64_t length() const override { return blocks.front().length; }
  };

  bool Normed(int64_t site) const { return mechanism_->At(static_cast<int>(site)).normed; }
  void Forward(int site, SequenceShape shape, const float* x, BlockSaved* saved, float* u);
  void Backward(int site, SequenceShape shape, const float* x, const BlockSaved& saved, const float* du,
                float* dx);
  const float* EmbedTokens(const int32_t* tokens, int64_t rows);
  const float* ResidualValues() { return parameters_.values() + residual_offset_; }
  float* ResidualGradients() { return parameters_.gradients() + residual_offset_; }

  std::unique_ptr<Mechanism<float>> mechanism_;
  int embedding_ = 0;
  std::unique_ptr<RopeTable> rope_;
  std::vector<AttentionSublayer<E>> attention_;
  std::vector<MlpSublayer<E>> mlp_;
  std::unique_ptr<LossHead<E>> head_;
  int64_t residual_offset_ = 0;
  Weights<E> weights_;
  Walker<float> training_, inference_;
  std::vector<BlockSaved> saved_;
  BlockSaved passing_;  // of sublayers that will not go backward
  SublayerScratch<E> scratch_;
  Buffer<float> embedded_, dx_, last_;
  std::vector<const float*> inputs_;  // x per site of the last TrainStep; then the head's
  int64_t rows_ = 0;
  SiteMagnitudes magnitudes_;
};

template <class E>
Body<E>::Body(const ModelConfig& config)
    : mechanism_(MechanismOf(config)),
      weights_(&parameters_),
      training_(*mechanism_, Walker<float>::Mode::kTrain),
      inference_(*mechanism_, Walker<float>::Mode::kInfer),
      saved_(static_cast<size_t>(config.blocks)) {
  config_ = config;
  embedding_ = AddEmbedding(config, &parameters_);
  if (config.positions == "rope") rope_ = std::make_unique<RopeTable>(config.context, config.head_dim());
  for (int64_t b = 0; b < config.blocks; ++b) {
    const std::string prefix = fmt::format("blocks.{}.", b);
    attention_.emplace_back(config, prefix, rope_.get(), Normed(2 * b), &parameters_);
    mlp_.emplace_back(config, prefix, Normed(2 * b + 1), &parameters_);
  }
  head_ = std::make_unique<LossHead<E>>(config, embedding_, Normed(config.sites()), &parameters_);
  const int first = parameters_.count();
  for (Parameter parameter : mechanism_->Parameters()) {
    parameter.name = "residual." + parameter.name;
    parameters_.Add(std::move(parameter));
  }
  residual_offset_ = first < parameters_.count() ? parameters_.offset(first) : 0;
  parameters_.Allocate();
}

template <class E>
const float* Body<E>::EmbedTokens(const int32_t* tokens, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    if (tokens[r] < 0 || tokens[r] >= config_.vocab) {
      Fail("tokens: expected ids below the vocabulary {}, got {}", config_.vocab, tokens[r]);
    }
  }
  weights_.Refresh();
  embedded_.Resize(rows * config_.dim);
  Embed(rows, config_.dim, parameters_.value(embedding_), tokens, embedded_.data());
  return embedded_.data();
}

template <class E>
void Body<E>::Forward(int site, SequenceShape shape, const float* x, BlockSaved* saved, float* u) {
  const auto block = static_cast<size_t>(site / 2);
  if (site % 2 == 0) {
    attention_[block].Forward(weights_, shape, x, &saved->attention, u);
  } else {
    mlp_[block].Forward(weights_, shape.rows(), x, &saved->mlp, u);
  }
}

template <class E>
void Body<E>::Backward(int site, SequenceShape shape, const float* x, const BlockSaved& saved,
                       const float* du, float* dx) {
  const auto block = static_cast<size_t>(site / 2);
  if (site % 2 == 0) {
    attention_[block].Backward(weights_, shape, x, saved.attention, du, &scratch_, dx);
  } else {
    mlp_[block].Backward(weights_, shape.rows(), x, saved.mlp, du, &scratch_, dx);
  }
}

template <class E>
double Body<E>::TrainStep(const int32_t* tokens, const int32_t* targets, int64_t batch, int64_t length,
                          double scale) {
  const SequenceShape shape{batch, length};
  rows_ = shape.rows();
  const float* x = training_.Begin(ResidualValues(), EmbedTokens(tokens, rows_), rows_);
  inputs_.assign(1, x);
  for (int site = 0; site < config_.sites(); ++site) {
    Forward(site, shape, x, &saved_[static_cast<size_t>(site / 2)], training_.update());
    x = training_.Next();
    inputs_.push_back(x);
  }
  dx_.Resize(rows_ * config_.dim);
  const double loss =
      head_->Loss(weights_, rows_, x, targets, static_cast<float>(scale), nullptr, dx_.data());
  const float* du = training_.BeginBack(dx_.data(), ResidualGradients());
  for (int site = config_.sites() - 1; site >= 0; --site) {
    const auto s = static_cast<size_t>(site);
    Backward(site, shape, inputs_[s], saved_[s / 2], du, dx_.data());
    du = training_.Back(dx_.data());
  }
  EmbedVjp(rows_, config_.dim, du, tokens, parameters_.gradient(embedding_));
  return loss;
}

template <class E>
double Body<E>::Evaluate(const int32_t* tokens, const int32_t* targets, int64_t batch, int64_t length,
                         float* losses) {
  const SequenceShape shape{batch, length};
  const int64_t numbers = shape.rows() * config_.dim;
  const auto rms = [&](const float* v) {
    return std::sqrt(SumOfSquares(numbers, v) / static_cast<double>(numbers));
  };
  magnitudes_ = {};
  const float* x = inference_.Begin(ResidualValues(), EmbedTokens(tokens, shape.rows()), shape.rows());
  for (int site = 0; site < config_.sites(); ++site) {
    magnitudes_.state.push_back(rms(x));
    Forward(site, shape, x, &passing_, inference_.update());
    magnitudes_.update.push_back(rms(inference_.update()));
    x = inference_.Next();
  }
  return head_->Loss(weights_, shape.rows(), x, targets, 1.0f, losses, nullptr);
}

template <class E>
std::unique_ptr<Decoder::Cache> Body<E>::NewCache(int64_t batch) {
  auto cache = std::make_unique<KeyValueCache>();
  cache->batch = batch;
  cache->blocks.resize(static_cast<size_t>(config_.blocks));
  for (KeyValues<E>& block : cache->blocks) {
    block.keys.Resize(batch * config_.kv_heads * config_.context * config_.head_dim());
    block.values.Resize(block.keys.size());
  }
  return cache;
}

template <class E>
void Body<E>::Extend(Cache* base, const int32_t* tokens, int64_t length, bool all_positions, float* logits) {
  auto* cache = static_cast<KeyValueCache*>(base);
  if (cache->length() + length > config_.context) {
    Fail("generate: expected at most {} tokens (the context), got {}", config_.context,
         cache->length() + length);
  }
  const SequenceShape shape{cache->batch, length};
  const float* x = inference_.Begin(ResidualValues(), EmbedTokens(tokens, shape.rows()), shape.rows());
  for (int site = 0; site < config_.sites(); ++site) {
    const auto block = static_cast<size_t>(site / 2);
    if (site % 2 == 0) {
      attention_[block].Extend(weights_, shape, x, &passing_.attention, &cache->blocks[block],
                               inference_.update());
    } else {
      mlp_[block].Forward(weights_, shape.rows(), x, &passing_.mlp, inference_.update());
    }
    x = inference_.Next();
  }
  if (all_positions || length == 1) return head_->Logits(weights_, shape.rows(), x, logits);
  last_.Resize(cache->batch * config_.dim);
  for (int64_t b = 0; b < cache->batch; ++b) {
    std::copy_n(x + ((b + 1) * length - 1) * config_.dim, config_.dim, last_.data() + b * config_.dim);
  }
  head_->Logits(weights_, cache->batch, last_.data(), logits);
}

template <class E>
std::string Body<E>::FirstNonFinite() {
  for (int i = 0; i < parameters_.count(); ++i) {
    if (!AllFinite(parameters_.spec(i).size(), parameters_.value(i))) return parameters_.spec(i).name;
  }
  for (size_t s = 0; s < inputs_.size(); ++s) {
    if (AllFinite(rows_ * config_.dim, inputs_[s])) continue;
    if (s == inputs_.size() - 1) return "input of the head";
    return fmt::format("input of blocks.{}.{}", s / 2, s % 2 == 0 ? "attention" : "mlp");
  }
  for (int i = 0; i < parameters_.count(); ++i) {
    if (!AllFinite(parameters_.spec(i).size(), parameters_.gradient(i))) {
      return "gradient of " + parameters_.spec(i).name;
    }
  }
  return "";
}

template <class E>
int64_t Body<E>::Bytes(const ModelConfig& c, int64_t batch, int64_t length, int64_t parameters) {
  const int64_t rows = CheckedProduct(batch, length, "batch x context");
  const int64_t wide =
      std::max((c.heads + 2 * c.kv_heads) * c.head_dim(), c.activation == "swiglu" ? 2 * c.mlp : c.mlp);
  const int64_t inner = std::max(c.heads * c.head_dim(), c.mlp);
  const int64_t scratch =
      rows * ((c.dim + inner + wide) * int64_t{sizeof(E)} + 3 * c.dim * int64_t{sizeof(float)});
  const int64_t saved = AttentionSublayer<E>::SavedBytes(c, rows) + MlpSublayer<E>::SavedBytes(c, rows);
  // One more block's worth and one inference state for the evaluations between the steps.
  return (c.blocks + 1) * saved + scratch + LossHead<E>::Bytes(c, rows) + Weights<E>::Bytes(parameters) +
         Walker<float>::TrainingBytes(*MechanismOf(c), rows);
}

}  // namespace

std::unique_ptr<Decoder> MakeDecoder(const ModelConfig& config, Precision precision) {
  if (ResolvePrecision(precision) == Precision::kBf16) return std::make_unique<Body<BFloat16>>(config);
  return std::make_unique<Body<float>>(config);
}

int64_t CountParameters(const ModelConfig& config, int64_t* residual) {
  ParameterSet set;
  const int embedding = AddEmbedding(config, &set);
  const auto mechanism = MechanismOf(config);
  const bool normed = mechanism->At(0).normed;  // at one site as at all
  const AttentionSublayer<float> attention(config, "", nullptr, normed, &set);
  const MlpSublayer<float> mlp(config, "", normed, &set);
  const int block_end = set.count();
  const LossHead<float> head(config, embedding, mechanism->At(config.sites()).normed, &set);
  int64_t total = 0;
  for (int i = 0; i < set.count(); ++i) {
    const bool in_block = i > embedding && i < block_end;
    total += set.spec(i).size() * (in_block ? config.blocks : 1);
  }
  int64_t of_residual = 0;
  for (const Parameter& parameter : mechanism->Parameters()) of_residual += parameter.size();
  if (residual != nullptr) *residual = of_residual;
  return total + of_residual;
}

int64_t Decoder::ActivationBytes(const ModelConfig& config, int64_t batch, int64_t length,
                                 Precision precision) {
  const int64_t parameters = CountParameters(config);
  if (ResolvePrecision(precision) == Precision::kBf16) {
    return Body<BFloat16>::Bytes(config, batch, length, parameters);
  }
  return Body<float>::Bytes(config, batch, length, parameters);
}

}  // namespace strata
