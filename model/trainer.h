#ifndef STRATA_MODEL_TRAINER_H_
#define STRATA_MODEL_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/data.h"
#include "model/decoder.h"

namespace strata {

struct TrainOptions {
  int64_t batch = 8;       // sequences per micro-batch
  int64_t accumulate = 1;  // micro-batches per step
  int64_t steps = 300;
  int64_t tokens = 0;  // if > 0: steps = ceil(tokens / (batch * accumulate * context))
  double lr = 1e-3;
  std::string schedule = "cosine";  // cosine, wsd, constant
  int64_t warmup = 0;               // 0: a tenth of the steps, at most 100
  double final_lr = 0.1;            // fraction of lr at the end
  double clip = 1.0;                // global norm; 0: off
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95;
  int64_t seed = 1;
  int64_t evaluate = 50;     // steps between evaluations
  int64_t checkpoint = 200;  // steps between checkpoints; a last one is always written
  int64_t validation_windows = 64;
  int64_t threads = 0;  // 0: all cores
  std::string precision = "auto";
  std::string out = "runs/train";
  std::vector<std::string> text;
  std::string tokenizer = "bytes";

  template <class Self, class Visitor>
  static void Visit(Self& self, Visitor&& visit) {
    visit("batch", self.batch, "sequences per micro-batch");
    visit("accumulate", self.accumulate, "micro-batches per step");
    visit("steps", self.steps, "optimiser steps");
    visit("tokens", self.tokens, "training tokens; sets --steps if given");
    visit("lr", self.lr, "peak learning rate");
    visit("schedule", self.schedule, "cosine, wsd or constant");
    visit("warmup", self.warmup, "warm-up steps (0: a tenth, at most 100)");
    visit("final-lr", self.final_lr, "last learning rate as a fraction of --lr");
    visit("clip", self.clip, "largest gradient norm (0: off)");
    visit("weight-decay", self.weight_decay, "decoupled weight decay");
    visit("beta1", self.beta1, "AdamW's first decay rate");
    visit("beta2", self.beta2, "AdamW's second decay rate");
    visit("seed", self.seed, "seed of initialisation and data order");
    visit("evaluate", self.evaluate, "steps between evaluations");
    visit("checkpoint", self.checkpoint, "steps between checkpoints");
    visit("validation-windows", self.validation_windows, "fixed validation windows");
    visit("threads", self.threads, "threads (0: all cores)");
    visit("precision", self.precision, "matrix products: f32, bf16 or auto");
    visit("out", self.out, "folder of the run");
    visit("text", self.text, "text files, folders or .bin token shards");
    visit("tokenizer", self.tokenizer, "bytes, or the path of a BPE model");
  }
  void Resolve(const ModelConfig& config);  // fills and checks; exit 2
};

// One record of metrics.jsonl. Evaluation fields are negative where the step was not evaluated.
struct StepRecord {
  int64_t step = 0, tokens = 0;
  double loss = 0, gradient_norm = 0, lr = 0, tokens_per_second = 0, seconds = 0;
  double validation_loss = -1, validation_nats_per_byte = -1;
  SiteMagnitudes magnitudes;  // filled where evaluated, like the next
  Health health;
  bool resumed = false;  // first record after a resume
};

struct TrainResult {
  bool interrupted = false;
  int64_t step = 0, tokens = 0, parameters = 0;
  double validation_loss = 0, validation_nats_per_byte = 0;
  double median_step_seconds = 0;
  int64_t peak_bytes = 0;  // of the process
};

// Trains (or with `resume` goes on) in options.out: config.json, metrics.jsonl, model.safetensors,
// state.safetensors, tokenizer.model for BPE. `on_record` sees each record (progress). Bit-exact on resume.
// Stops after the current step once StopRequested(). Errors: memory estimate beyond what is free, non-finite
// loss (first non-finite tensor named; the last good checkpoint is kept), a run folder of another
// configuration.
TrainResult Train(ModelConfig config, TrainOptions options, const Corpus& corpus, const Tokenizer& tokenizer,
                  bool resume, const std::function<void(const StepRecord&)>& on_record);

// Error (exit 2) unless the folder is empty or does not exist.
void ExpectUnused(const std::string& folder);

// Ctrl-C and SIGTERM set a flag; training loops look at it between steps.
void InstallStopHandlers();
bool StopRequested();
void ClearStop();

// nats over fixed windows of the validation split.
struct EvalResult {
  double nats_per_token = 0, nats_per_byte = 0, perplexity = 0;
  int64_t tokens = 0, bytes = 0;
};
EvalResult EvaluateWindows(Decoder* decoder, const std::vector<int32_t>& tokens,
                           const std::vector<int32_t>& bytes_per_token, int64_t windows, int64_t batch);

// The same over a whole text: windows of the model's context side by side, so every token after the first is
// scored once. bytes_per_token may be empty (nats per byte is then 0).
EvalResult EvaluateAll(Decoder* decoder, const std::vector<int32_t>& tokens,
                       const std::vector<int32_t>& bytes_per_token, int64_t batch);

// A trained model read back from a run's folder; every mismatch of tensors, shapes or tokenizer is an Error.
struct LoadedModel {
  ModelConfig config;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<Tokenizer> tokenizer;
};
LoadedModel LoadModel(const std::string& folder, Precision precision);

}  // namespace strata

#endif  // STRATA_MODEL_TRAINER_H_
