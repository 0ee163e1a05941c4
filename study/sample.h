#ifndef STRATA_STUDY_SAMPLE_H_
#define STRATA_STUDY_SAMPLE_H_

#include <string>

#include "model/data.h"
#include "model/decoder.h"
#include "model/tokenizer.h"

namespace strata {

// A few whole words from the start of the validation text, at most about 40 bytes; "" for ready-made ids.
std::string DefaultPrompt(const Corpus& corpus, const Tokenizer& tokenizer);

// About 400 characters that the model of a run writes after `prompt` (temperature 0.8, top-k 40, seed 1).
// Kept in FOLDER/sample.txt, prompt first; one that is there for the same prompt is read back.
std::string SampleOf(const std::string& folder, const std::string& prompt, Precision precision);

}  // namespace strata

#endif  // STRATA_STUDY_SAMPLE_H_
