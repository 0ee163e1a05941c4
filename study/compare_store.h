#ifndef STRATA_STUDY_COMPARE_STORE_H_
#define STRATA_STUDY_COMPARE_STORE_H_

#include <optional>
#include <string>

#include "study/compare.h"

namespace strata {

// Writes OUT/compare.json, or checks that it holds the same options. Error (exit 2) that names the first
// option that differs. Arms, seeds, prompt, paths, threads and checkpoints may change.
void OpenComparison(const Comparison& comparison, const Corpus& corpus);

// OUT/ARM/seed-N/result.json: there once a run is finished.
struct RunResult {
  int64_t step = 0, tokens = 0, parameters = 0;
  double loss = 0, nats_per_byte = 0, median_step_seconds = 0;
};
std::optional<RunResult> ReadResult(const std::string& folder);
void WriteResult(const std::string& folder, const RunResult& result);

}  // namespace strata

#endif  // STRATA_STUDY_COMPARE_STORE_H_
