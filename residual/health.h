#ifndef STRATA_RESIDUAL_HEALTH_H_
#define STRATA_RESIDUAL_HEALTH_H_

#include <map>
#include <string>
#include <vector>

#include "residual/walker.h"

namespace strata {

// What tells whether a residual connection does its work, over all tokens and sites of a pass. Only what the
// mechanism has:
//   slot_spread          slots at the head: rms of their distance from their mean, over their rms   (0: all
//   equal) keep_row_error       largest |row sum - 1| of keep matrices (rows: to), and of columns (from)
//   keep_column_error
//   gain_forward         largest |row sum| of the product of all keep matrices, mean over tokens
//   gain_backward        largest |column sum| likewise                     (arXiv 2512.24880, "Amax gain")
//   gate_mean            of the gates per channel, else of the write coefficients
//   gate_deviation
//   depth_entropy        entropy of the read's weights over slots that only grow, over ln(slots)    (1: all
//   equal)
// `warnings` has a sentence for each that has left its sane range.
struct Health {
  std::map<std::string, double> values;
  std::map<std::string, std::string> warnings;  // by the value's name
};
// After a forward pass of a training walker over the mechanism.
Health MeasureHealth(const Mechanism<float>& mechanism, const Walker<float>& walker);

}  // namespace strata

#endif  // STRATA_RESIDUAL_HEALTH_H_
