#ifndef STRATA_STUDY_UNIGRAM_H_
#define STRATA_STUDY_UNIGRAM_H_

#include <cstdint>

#include "model/data.h"
#include "model/trainer.h"

namespace strata {

// A yardstick: the loss of a model that knows only how often each token occurs in the training split (counts
// plus one), on the tokens that EvaluateWindows scores.
EvalResult EvaluateUnigram(const Corpus& corpus, int64_t context, int64_t windows);

}  // namespace strata

#endif  // STRATA_STUDY_UNIGRAM_H_
