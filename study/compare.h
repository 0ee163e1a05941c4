#ifndef STRATA_STUDY_COMPARE_H_
#define STRATA_STUDY_COMPARE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/trainer.h"

namespace strata {

struct CompareOptions {
  std::vector<std::string> residual = {"standard", "attnres", "mhc"};
  int64_t seeds = 2;
  std::string prompt;

  template <class Self, class Visitor>
  static void Visit(Self& self, Visitor&& visit) {
    visit("residual", self.residual,
          "residual connections to compare, NAME[:option=value,...] [standard attnres mhc]");
    visit("seeds", self.seeds, "runs of each, with seeds --seed, --seed + 1, ...; intervals need 2 or more");
    visit("prompt", self.prompt, "text that the samples go on from (empty: from the validation text)");
  }
};

// One residual connection. Losses are in nats per token on the fixed validation windows.
struct ComparedArm {
  std::string residual;  // NAME[:option=value,...], options in alphabetical order
  std::string folder;    // holds seed-N/ a run
  int64_t parameters = 0, tokens = 0, peak_bytes = 0;
  std::vector<double> losses;      // at the end, one a seed
  double loss = 0;                 // their mean
  double nats_per_byte = 0;        // mean; 0 where the text is of ready-made ids
  double median_step_seconds = 0;  // of the first seed's training
  bool resumed = false;            // a run went on after an interruption
  // Against standard with the same seeds; none without such an arm. Bounds: 95 %, none with one seed.
  std::optional<double> difference, difference_low, difference_high;
  std::optional<double> relative_step_time;  // none if the models do not fit into memory side by side
  std::string sample;                        // what the first seed's model writes after the prompt
};

struct Comparison {
  ModelConfig model;  // residual is not used
  TrainOptions training;
  CompareOptions options;  // prompt filled
  bool interrupted = false;
  std::vector<ComparedArm> arms;
  EvalResult unigram;  // a yardstick on the same validation tokens
};

// Steps done and in all, over all runs, and what is going on.
using CompareProgress = std::function<void(int64_t done, int64_t total, const std::string& note)>;

// Trains every (arm, seed) into OUT/ARM/seed-N, seed by seed so that the arms take turns, then times steps
// and draws samples. Arms share everything else: body, text, data order, budget; the seed decides them. Runs
// that are finished are not repeated and an unfinished one goes on, so an interrupted comparison is continued
// by calling this again. `interrupted` is set, and the arms are empty, if StopRequested() ended it. Errors
// (exit 2): unknown or repeated arms; OUT holds a comparison with other options (the first is named).
Comparison Compare(const ModelConfig& model, const TrainOptions& training, const CompareOptions& options,
                   const Corpus& corpus, const Tokenizer& tokenizer, const CompareProgress& on_progress);

// "attnres:block=4" -> "attnres-block-4".
std::string ArmFolder(const std::string& residual);

}  // namespace strata

#endif  // STRATA_STUDY_COMPARE_H_
