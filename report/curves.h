#ifndef STRATA_REPORT_CURVES_H_
#define STRATA_REPORT_CURVES_H_

#include <cstdint>
#include <vector>

#include "report/records.h"

namespace strata {

// A curve over several runs: at each x the mean, the least and the greatest of them.
struct Band {
  std::vector<double> x, mean, low, high;
};

// Validation loss at the steps that every run evaluated.
Band ValidationBand(const std::vector<Records>& runs);

// Validation loss minus that of the run of the same index in `baseline`, at the steps that all evaluated.
Band DifferenceBand(const std::vector<Records>& runs, const std::vector<Records>& baseline);

// Training loss: each point is the mean of `width` steps of a run, drawn at their middle; only points that
// all runs reached in full.
Band TrainingBand(const std::vector<Records>& runs, int64_t width);

// The width that leaves at most `points` points of the longest run.
int64_t SmoothingWidth(const std::vector<Records>& runs, int64_t points);

// RMS per sublayer at the last evaluation; x counts sublayers from 1. Empty if a run has none.
Band StateBand(const std::vector<Records>& runs);
Band UpdateBand(const std::vector<Records>& runs);

}  // namespace strata

#endif  // STRATA_REPORT_CURVES_H_
