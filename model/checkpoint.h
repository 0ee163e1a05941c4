#ifndef STRATA_MODEL_CHECKPOINT_H_
#define STRATA_MODEL_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "model/data.h"
#include "model/optimizer.h"
#include "model/trainer.h"

namespace strata {

// config.json of a run's folder: all options, flat under their names, and what identifies the tokenizer.
struct RunConfig {
  ModelConfig model;
  TrainOptions training;
  std::string tokenizer_name, tokenizer_fingerprint;
};
std::string ToJson(const RunConfig& run);
// Error (exit 1): missing, not JSON, of another format version, an unknown key, a wrong type or value.
RunConfig ReadRunConfig(const std::string& folder);
// The keys of config.json that are not options.
const std::vector<std::string>& RunConfigExtras();

// Where a run stands, beside weights and moments.
struct RunState {
  int64_t step = 0;
  Batches::Position position;
  uint64_t seed = 0;
  uint64_t corpus = 0;  // hash of the training tokens
};

// Writes model.safetensors (weights) and state.safetensors (moments and RunState). Both are written in full
// and flushed before either is renamed into place, state first; Error if that fails, and the old pair
// survives.
void SaveCheckpoint(const std::string& folder, const ModelConfig& config, ParameterSet* parameters,
                    AdamW* optimizer, const RunState& state);
// Reads both back. Error on any missing, extra or misshapen tensor, another configuration, or a pair of two
// different steps. A pair whose second rename was cut off is completed first.
RunState LoadCheckpoint(const std::string& folder, const ModelConfig& config, ParameterSet* parameters,
                        AdamW* optimizer);
// Weights alone; returns their step.
int64_t LoadWeights(const std::string& folder, const ModelConfig& config, ParameterSet* parameters);

}  // namespace strata

#endif  // STRATA_MODEL_CHECKPOINT_H_
