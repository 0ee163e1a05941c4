#ifndef STRATA_MODEL_DECODER_H_
#define STRATA_MODEL_DECODER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"
#include "residual/health.h"

namespace strata {

// Element type of the matrix products. kAuto: bf16 where the CPU multiplies it faster than f32 (AMX), else
// f32.
enum class Precision { kF32, kBf16, kAuto };
Precision ParsePrecision(const std::string& text);  // f32, bf16, auto; exit 2 otherwise
Precision ResolvePrecision(Precision precision);    // never kAuto
const char* ToString(Precision precision);

// Root mean squares over tokens and channels at each site in the last call of Evaluate.
struct SiteMagnitudes {
  std::vector<double> state;   // of x, the sublayer's input, per site
  std::vector<double> update;  // of u, the sublayer's output, per site
};

// A decoder-only Transformer with explicit forward and backward passes around one residual connection.
// Keys and values of a generation lie in a Cache; the residual state never outlives a call.
class Decoder {
 public:
  class Cache;
  virtual ~Decoder() = default;
  const ModelConfig& config() const { return config_; }
  ParameterSet& parameters() { return parameters_; }

  // tokens, targets: [batch, length] row-major; a target < 0 is not counted. Returns the sum of the
  // cross-entropies in nats over the counted targets, and adds `scale` times its gradient to
  // parameters().gradients().
  virtual double TrainStep(const int32_t* tokens, const int32_t* targets, int64_t batch, int64_t length,
                           double scale) = 0;
  // The same sum without gradients. If losses is not null, the nats of each position [batch, length] are
  // stored.
  virtual double Evaluate(const int32_t* tokens, const int32_t* targets, int64_t batch, int64_t length,
                          float* losses = nullptr) = 0;
  // Call after the parameters changed: the products' copies of the weights are made anew.
  virtual void WeightsChanged() = 0;

  // Appends `length` tokens to each of the cache's sequences and assigns the logits [batch, vocab] of the
  // last position of each (all positions [batch, length, vocab] if all_positions). Error if the context is
  // exceeded.
  virtual std::unique_ptr<Cache> NewCache(int64_t batch) = 0;
  virtual void Extend(Cache* cache, const int32_t* tokens, int64_t length, bool all_positions,
                      float* logits) = 0;

  virtual SiteMagnitudes Magnitudes() const = 0;
  // Of the residual connection in the last TrainStep.
  virtual Health ResidualHealth() = 0;
  // Name of the first non-finite tensor of the last TrainStep (activation, then gradient), "" if none.
  virtual std::string FirstNonFinite() = 0;

  // Bytes that training holds beside parameters, gradients and optimiser moments; computed without
  // allocating.
  static int64_t ActivationBytes(const ModelConfig& config, int64_t batch, int64_t length,
                                 Precision precision);

 protected:
  ModelConfig config_;
  ParameterSet parameters_;
};

class Decoder::Cache {
 public:
  virtual ~Cache() = default;
  virtual int64_t length() const = 0;  // tokens held per sequence
};

// config must be resolved. Parameters are allocated but not initialised.
std::unique_ptr<Decoder> MakeDecoder(const ModelConfig& config, Precision precision);
// Number of parameters (and of those in the residual connection) without allocating any.
int64_t CountParameters(const ModelConfig& config, int64_t* residual = nullptr);

}  // namespace strata

#endif  // STRATA_MODEL_DECODER_H_
