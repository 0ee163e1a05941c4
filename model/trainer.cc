#include "model/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/files.h"
#include "base/options.h"
#include "base/parallel.h"
#include "model/checkpoint.h"
#include "model/memory.h"
#include "model/metrics.h"
#include "model/optimizer.h"
#include "ops/nn.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

uint64_t HashTokens(const std::vector<int32_t>& tokens) {
  return HashName({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t)});
}

void CreateFolder(const std::string& folder) {
  ExpectUnused(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder)) {
    Fail("{}: expected a folder that can be made, got: {}", folder, error ? error.message() : "a file");
  }
}

// Options that may change when a run goes on; all others would make it another run.
const std::vector<std::string>& FreeToChange() {
  static const std::vector<std::string> names = {"steps",   "tokens",    "evaluate", "checkpoint",
                                                 "threads", "tokenizer", "text",     "validation-windows",
                                                 "out"};
  return names;
}

void ExpectSameRun(const RunConfig& stored, const RunConfig& wanted) {
  const nlohmann::json before = nlohmann::json::parse(ToJson(stored));
  const nlohmann::json now = nlohmann::json::parse(ToJson(wanted));
  for (const auto& item : before.items()) {
    const std::vector<std::string>& free = FreeToChange();
    if (std::find(free.begin(), free.end(), item.key()) != free.end()) continue;
    if (item.value() != now[item.key()]) {
      FailUsage("--resume: expected {} {} as in {}/config.json, got {}", item.key(), item.value().dump(),
                wanted.training.out, now[item.key()].dump());
    }
  }
}

// One training run: what lives from step to step.
class Run {
 public:
  Run(const RunConfig& run, const Corpus& corpus);
  void Start(const Tokenizer& tokenizer);
  void Resume();
  TrainResult Loop(const std::function<void(const StepRecord&)>& on_record);

 private:
  StepRecord Step();
  double MicroBatches();
  void Evaluate(StepRecord* record);
  void Save();
  [[noreturn]] void FailNonFinite(const char* what, double value);
  int64_t TokensPerStep() const { return options_.batch * options_.accumulate * config_.context; }

  RunConfig run_;
  const ModelConfig& config_ = run_.model;
  const TrainOptions& options_ = run_.training;
  const Corpus& corpus_;
  std::unique_ptr<Decoder> decoder_;
  AdamW optimizer_;
  Batches batches_;
  RunState state_;
  std::unique_ptr<MetricsFile> metrics_;
  std::vector<int32_t> tokens_, targets_;
  std::vector<double> step_seconds_;
  int64_t saved_step_ = -1;
  TrainResult result_;
};

Run::Run(const RunConfig& run, const Corpus& corpus)
    : run_(run),
      corpus_(corpus),
      decoder_(MakeDecoder(config_, ParsePrecision(options_.precision))),
      optimizer_(decoder_->parameters(), {options_.beta1, options_.beta2, 1e-8, options_.weight_decay}),
      batches_(corpus.train, config_.context, static_cast<uint64_t>(options_.seed)) {
  state_.seed = static_cast<uint64_t>(options_.seed);
  state_.corpus = HashTokens(corpus.train);
  tokens_.resize(static_cast<size_t>(options_.batch * config_.context));
  targets_.resize(tokens_.size());
  result_.parameters = decoder_->parameters().total();
}

void Run::Start(const Tokenizer& tokenizer) {
  WriteFileAtomically(options_.out + "/config.json", ToJson(run_));
  if (tokenizer.name() == "bpe") tokenizer.Save(options_.out + "/tokenizer.model");
  decoder_->parameters().Initialise(state_.seed);
  metrics_ = std::make_unique<MetricsFile>(options_.out, 0);
}

void Run::Resume() {
  const RunConfig stored = ReadRunConfig(options_.out);
  ExpectSameRun(stored, run_);
  if (!fs::exists(options_.out + "/state.safetensors")) {
    Fail("{}: expected a checkpoint to go on from, got none; train anew in an empty folder", options_.out);
  }
  const RunState fresh = state_;
  state_ = LoadCheckpoint(options_.out, config_, &decoder_->parameters(), &optimizer_);
  if (state_.corpus != fresh.corpus) {
    Fail("--resume: expected the text that the run began with, got another");
  }
  if (state_.seed != fresh.seed) Fail("--resume: expected seed {}, got {}", state_.seed, fresh.seed);
  if (state_.step > options_.steps) {
    FailUsage("--steps: expected at least {} (already done), got {}", state_.step, options_.steps);
  }
  batches_.set_position(state_.position);
  saved_step_ = state_.step;
  WriteFileAtomically(options_.out + "/config.json", ToJson(run_));
  metrics_ = std::make_unique<MetricsFile>(options_.out, state_.step);
}

// Sums the gradients of all micro-batches; returns the mean loss.
double Run::MicroBatches() {
  const double scale = 1.0 / static_cast<double>(TokensPerStep());
  double nats = 0;
  for (int64_t i = 0; i < options_.accumulate; ++i) {
    batches_.Next(options_.batch, tokens_.data(), targets_.data());
    nats += decoder_->TrainStep(tokens_.data(), targets_.data(), options_.batch, config_.context, scale);
    if (!std::isfinite(nats)) FailNonFinite("loss", nats);
  }
  return nats * scale;
}

StepRecord Run::Step() {
  const auto begin = Clock::now();
  ParameterSet& parameters = decoder_->parameters();
  StepRecord record;
  record.loss = MicroBatches();
  record.gradient_norm = GradientNorm(parameters);
  if (!std::isfinite(record.gradient_norm)) FailNonFinite("gradient norm", record.gradient_norm);
  record.lr = LearningRate(options_.schedule, options_.lr, state_.step, options_.steps, options_.warmup,
                           options_.final_lr);
  const bool clips = options_.clip > 0 && record.gradient_norm > options_.clip;
  optimizer_.Step(&parameters, record.lr, clips ? options_.clip / record.gradient_norm : 1.0);
  decoder_->WeightsChanged();
  record.step = ++state_.step;
  record.tokens = state_.step * TokensPerStep();
  state_.position = batches_.position();
  step_seconds_.push_back(SecondsSince(begin));
  record.tokens_per_second = static_cast<double>(TokensPerStep()) / step_seconds_.back();
  return record;
}

void Run::Evaluate(StepRecord* record) {
  const EvalResult eval = EvaluateWindows(decoder_.get(), corpus_.validation, corpus_.validation_bytes,
                                          options_.validation_windows, options_.batch);
  if (!std::isfinite(eval.nats_per_token)) FailNonFinite("validation loss", eval.nats_per_token);
  result_.validation_loss = record->validation_loss = eval.nats_per_token;
  result_.validation_nats_per_byte = eval.nats_per_byte;
  if (eval.bytes > 0) record->validation_nats_per_byte = eval.nats_per_byte;
  record->magnitudes = decoder_->Magnitudes();
  if (record->step > 0) record->health = decoder_->ResidualHealth();
}

void Run::Save() {
  ParameterSet& parameters = decoder_->parameters();
  if (!AllFinite(parameters.total(), parameters.values())) FailNonFinite("weights", NAN);
  SaveCheckpoint(options_.out, config_, &parameters, &optimizer_, state_);
  saved_step_ = state_.step;
}

void Run::FailNonFinite(const char* what, double value) {
  const std::string first = decoder_->FirstNonFinite();
  Fail("step {}: expected finite {}, got {}; first non-finite tensor: {}; {}", state_.step + 1, what, value,
       first.empty() ? what : first,
       saved_step_ < 0 ? "no checkpoint was written yet; a smaller --lr helps"
                       : fmt::format("the checkpoint of step {} is kept", saved_step_));
}

TrainResult Run::Loop(const std::function<void(const StepRecord&)>& on_record) {
  const auto begin = Clock::now();
  bool resumed = saved_step_ >= 0;
  if (state_.step == options_.steps) {
    StepRecord last;
    Evaluate(&last);
  }
  while (state_.step < options_.steps && !StopRequested()) {
    StepRecord record = Step();
    const bool last = state_.step == options_.steps;
    record.resumed = std::exchange(resumed, false);
    if (last || state_.step % options_.evaluate == 0) Evaluate(&record);
    record.seconds = metrics_->seconds() + SecondsSince(begin);
    metrics_->Add(record);
    if (!last && state_.step % options_.checkpoint == 0) Save();
    if (on_record) on_record(record);
  }
  if (saved_step_ != state_.step) Save();
  result_.interrupted = state_.step < options_.steps;
  result_.step = state_.step;
  result_.tokens = state_.step * TokensPerStep();
  if (!step_seconds_.empty()) {
    const auto middle = step_seconds_.begin() + static_cast<std::ptrdiff_t>(step_seconds_.size() / 2);
    std::nth_element(step_seconds_.begin(), middle, step_seconds_.end());
    result_.median_step_seconds = *middle;
  }
  result_.peak_bytes = PeakBytes();
  return result_;
}

}  // namespace

void ExpectUnused(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error) || fs::is_empty(folder, error)) return;
  FailUsage("{}: expected an empty folder (or --resume), got one with files in it", folder);
}

TrainResult Train(ModelConfig config, TrainOptions options, const Corpus& corpus, const Tokenizer& tokenizer,
                  bool resume, const std::function<void(const StepRecord&)>& on_record) {
  config.Resolve();
  options.Resolve(config);
  if (config.vocab < corpus.vocab) {
    FailUsage("--vocab: expected at least {} (the tokenizer's), got {}", corpus.vocab, config.vocab);
  }
  const Precision precision = ResolvePrecision(ParsePrecision(options.precision));
  options.precision = ToString(precision);
  CheckMemory(EstimateMemory(config, options.batch, precision), FreeBytes());
  if (options.threads > 0) SetThreads(static_cast<int>(options.threads));
  if (resume) {
    ReadRunConfig(options.out);  // names what is missing
  } else {
    CreateFolder(options.out);
  }
  const FolderLock lock(options.out);
  Run run({config, options, corpus.tokenizer_name, corpus.fingerprint}, corpus);
  if (resume) {
    run.Resume();
  } else {
    run.Start(tokenizer);
  }
  return run.Loop(on_record);
}

}  // namespace strata
