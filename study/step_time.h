#ifndef STRATA_STUDY_STEP_TIME_H_
#define STRATA_STUDY_STEP_TIME_H_

#include <functional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/decoder.h"

namespace strata {

// How long one training step (forward, backward, optimiser) of a residual connection takes.
struct StepTime {
  std::string residual;
  double seconds = 0;               // median over the rounds
  double tokens_per_second = 0;     // of that median
  double relative_to_standard = 1;  // median over the rounds of time / standard's time in the same round
  int64_t peak_bytes = 0;           // what training holds: parameters, gradients, moments, activations
};

// Times `residuals` on bodies of the shape `config` (its residual is ignored), on random tokens, in turn:
// every round makes one step of each, `standard` among them whether asked for or not, so that a slower moment
// of the machine meets all of them. One round before is not counted. on_round sees the rounds done (may be
// null).
std::vector<StepTime> TimeSteps(const ModelConfig& config, const std::vector<std::string>& residuals,
                                int64_t batch, Precision precision, int rounds,
                                const std::function<void(int)>& on_round);

}  // namespace strata

#endif  // STRATA_STUDY_STEP_TIME_H_
