#ifndef STRATA_RESIDUAL_MIXING_H_
#define STRATA_RESIDUAL_MIXING_H_

#include <vector>

#include "residual/walker.h"

namespace strata {

// Depth mixing: every connection unrolls to  x_l = sum_i M[l, i] v_i  with v_0 the embedding and v_i the
// update of site i - 1. M [tokens, sites + 1, sites + 1] (reader, source; the last reader is the head) from
// the coefficients of a training walker's last pass alone; zeros where there is nothing to read. Empty where
// a coefficient is per channel. The pass has started from the embedding.
std::vector<double> DepthMixing(const Mechanism<double>& mechanism, const Walker<double>& walker);

}  // namespace strata

#endif  // STRATA_RESIDUAL_MIXING_H_
