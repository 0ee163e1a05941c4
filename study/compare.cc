#include "study/compare.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <limits>

#include "model/memory.h"
#include "report/records.h"
#include "study/compare_store.h"
#include "study/sample.h"
#include "study/statistics.h"
#include "study/step_time.h"
#include "study/unigram.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

// One comparison under way.
class Study {
 public:
  Study(const ModelConfig& model, const TrainOptions& training, const CompareOptions& options,
        const Corpus& corpus, const Tokenizer& tokenizer, const CompareProgress& on_progress);
  Comparison Run();

 private:
  ModelConfig ModelOf(const ComparedArm& arm) const;
  std::string RunFolder(const ComparedArm& arm, int64_t seed) const {
    return fmt::format("{}/seed-{}", arm.folder, seed);
  }
  int64_t Steps() const { return comparison_.training.steps; }
  int64_t FirstSeed() const { return comparison_.training.seed; }
  Precision precision() const { return ParsePrecision(comparison_.training.precision); }
  void AddArm(const std::string& residual);
  int64_t StepsDone(int64_t* finished) const;
  bool TrainRun(const ComparedArm& arm, int64_t seed, int64_t done);
  void Collect(ComparedArm* arm) const;
  void CompareWithStandard();
  void TimeArms();

  Comparison comparison_;
  const Corpus& corpus_;
  const Tokenizer& tokenizer_;
  CompareProgress on_progress_;
  int64_t total_ = 0;
};

Study::Study(const ModelConfig& model, const TrainOptions& training, const CompareOptions& options,
             const Corpus& corpus, const Tokenizer& tokenizer, const CompareProgress& on_progress)
    : comparison_{model, training, options, false, {}, {}},
      corpus_(corpus),
      tokenizer_(tokenizer),
      on_progress_(on_progress) {
  comparison_.model.Resolve();
  comparison_.training.Resolve(comparison_.model);
  comparison_.training.precision = ToString(ResolvePrecision(precision()));
  if (options.seeds < 1 || options.seeds > 1000) {
    FailUsage("--seeds: expected 1 to 1000, got {}", options.seeds);
  }
  if (FirstSeed() > std::numeric_limits<int64_t>::max() - options.seeds) {
    FailUsage("--seed: expected a first seed that leaves room for {} more, got {}", options.seeds,
              FirstSeed());
  }
  if (options.residual.empty()) FailUsage("--residual: expected at least one, got none");
  for (const std::string& residual : options.residual) AddArm(residual);
  comparison_.options.residual.clear();
  for (const ComparedArm& arm : comparison_.arms) comparison_.options.residual.push_back(arm.residual);
  if (tokenizer.name() == "ids") {
    comparison_.options.prompt.clear();
  } else if (options.prompt.empty()) {
    comparison_.options.prompt = DefaultPrompt(corpus, tokenizer);
  }
  total_ = options.seeds * Steps() * static_cast<int64_t>(comparison_.arms.size());
}

ModelConfig Study::ModelOf(const ComparedArm& arm) const {
  ModelConfig model = comparison_.model;
  model.residual = arm.residual;
  return model;
}

void Study::AddArm(const std::string& residual) {
  ModelConfig model = comparison_.model;
  model.residual = residual;
  model.Resolve();
  ComparedArm arm;
  arm.residual = model.residual;
  arm.folder = comparison_.training.out + "/" + ArmFolder(arm.residual);
  for (const ComparedArm& other : comparison_.arms) {
    if (other.folder == arm.folder) {
      FailUsage("--residual: expected each one once, got {} and {}", other.residual, arm.residual);
    }
  }
  const MemoryEstimate estimate = EstimateMemory(model, comparison_.training.batch, precision());
  CheckMemory(estimate, FreeBytes());
  arm.peak_bytes = estimate.total();
  comparison_.arms.push_back(std::move(arm));
}

// Steps of all runs that need not be repeated; `finished` counts those of finished runs alone.
int64_t Study::StepsDone(int64_t* finished) const {
  int64_t done = 0;
  for (const ComparedArm& arm : comparison_.arms) {
    for (int64_t i = 0; i < comparison_.options.seeds; ++i) {
      const std::string folder = RunFolder(arm, FirstSeed() + i);
      if (ReadResult(folder)) {
        done += Steps();
        *finished += Steps();
      } else if (fs::exists(folder + "/state.safetensors") && fs::exists(folder + "/metrics.jsonl")) {
        const Records records = ReadRecords(folder + "/metrics.jsonl");
        if (!records.lines.empty()) done += records.lines.back().step;
      }
    }
  }
  return done;
}

// Trains one run to its end. False if it was stopped.
bool Study::TrainRun(const ComparedArm& arm, int64_t seed, int64_t done) {
  TrainOptions training = comparison_.training;
  training.seed = seed;
  training.out = RunFolder(arm, seed);
  const bool resume = fs::exists(training.out + "/state.safetensors");
  // A run that ended before its first checkpoint has nothing to go on from.
  if (!resume && fs::exists(training.out + "/config.json")) fs::remove_all(training.out);
  try {
    const TrainResult result =
        Train(ModelOf(arm), training, corpus_, tokenizer_, resume, [&](const StepRecord& record) {
          on_progress_(done + record.step, total_,
                       fmt::format("{} seed {}: step {}/{}  loss {:.4f}", arm.residual, seed, record.step,
                                   Steps(), record.loss));
        });
    if (result.interrupted) return false;
    WriteResult(training.out, {result.step, result.tokens, result.parameters, result.validation_loss,
                               result.validation_nats_per_byte, result.median_step_seconds});
    return true;
  } catch (const Error& error) {
    throw Error(fmt::format("{} seed {}: {}", arm.residual, seed, error.what()), error.code());
  }
}

void Study::Collect(ComparedArm* arm) const {
  std::vector<double> nats_per_byte;
  for (int64_t i = 0; i < comparison_.options.seeds; ++i) {
    const std::string folder = RunFolder(*arm, FirstSeed() + i);
    const std::optional<RunResult> result = ReadResult(folder);
    if (!result) Fail("{}: expected a result.json, got none", folder);
    arm->losses.push_back(result->loss);
    nats_per_byte.push_back(result->nats_per_byte);
    arm->parameters = result->parameters;
    arm->tokens = result->tokens;
    if (i == 0) arm->median_step_seconds = result->median_step_seconds;
    arm->resumed = arm->resumed || ReadRecords(folder + "/metrics.jsonl").resumed();
  }
  arm->loss = Mean(arm->losses);
  arm->nats_per_byte = Mean(nats_per_byte);
  if (!comparison_.options.prompt.empty()) {
    arm->sample = SampleOf(RunFolder(*arm, FirstSeed()), comparison_.options.prompt, precision());
  }
}

void Study::CompareWithStandard() {
  const auto standard = std::find_if(comparison_.arms.begin(), comparison_.arms.end(),
                                     [](const ComparedArm& arm) { return arm.residual == "standard"; });
  if (standard == comparison_.arms.end()) return;
  for (ComparedArm& arm : comparison_.arms) {
    const PairedDifference difference = ComparePairs(arm.losses, standard->losses);
    arm.difference = difference.mean;
    if (!difference.has_interval) continue;
    arm.difference_low = difference.low;
    arm.difference_high = difference.high;
  }
}

// About 20 seconds of steps in which all arms take turns, in 3 to 9 rounds.
void Study::TimeArms() {
  int64_t bytes = 0;
  double seconds = 0;
  for (const ComparedArm& arm : comparison_.arms) {
    bytes += arm.peak_bytes;
    seconds += arm.median_step_seconds;
  }
  ModelConfig standard = comparison_.model;
  standard.residual = "standard";
  if (bytes + EstimateMemory(standard, comparison_.training.batch, precision()).total() > FreeBytes()) return;
  const int rounds = static_cast<int>(std::clamp(20 / std::max(seconds, 1e-6), 3.0, 9.0));
  on_progress_(total_, total_, fmt::format("timing {} steps of each", rounds + 1));
  const std::vector<StepTime> times = TimeSteps(comparison_.model, comparison_.options.residual,
                                                comparison_.training.batch, precision(), rounds, nullptr);
  for (size_t i = 0; i < times.size(); ++i) {
    comparison_.arms[i].relative_step_time = times[i].relative_to_standard;
  }
}

Comparison Study::Run() {
  OpenComparison(comparison_, corpus_);
  int64_t done = 0;
  on_progress_(StepsDone(&done), total_, "starting");
  for (int64_t i = 0; i < comparison_.options.seeds; ++i) {
    for (const ComparedArm& arm : comparison_.arms) {
      const int64_t seed = FirstSeed() + i;
      if (ReadResult(RunFolder(arm, seed))) continue;
      if (StopRequested() || !TrainRun(arm, seed, done)) {
        comparison_.interrupted = true;
        comparison_.arms.clear();
        return comparison_;
      }
      done += Steps();
    }
  }
  TimeArms();
  for (ComparedArm& arm : comparison_.arms) Collect(&arm);
  CompareWithStandard();
  comparison_.unigram =
      EvaluateUnigram(corpus_, comparison_.model.context, comparison_.training.validation_windows);
  return comparison_;
}

}  // namespace

std::string ArmFolder(const std::string& residual) {
  std::string folder = residual;
  for (char& c : folder) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_') c = '-';
  }
  return folder;
}

Comparison Compare(const ModelConfig& model, const TrainOptions& training, const CompareOptions& options,
                   const Corpus& corpus, const Tokenizer& tokenizer, const CompareProgress& on_progress) {
  return Study(model, training, options, corpus, tokenizer, on_progress).Run();
}

}  // namespace strata
