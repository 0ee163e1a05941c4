#ifndef STRATA_RESIDUAL_HELD_H_
#define STRATA_RESIDUAL_HELD_H_

#include <memory>
#include <optional>
#include <vector>

#include "residual/mechanism.h"

namespace strata {

// One coefficient at given numbers: `values` of one token (the same for all) or of every token, in the layout
// of its kind (ops/mix.h).
struct HeldCoef {
  Coef kind = Coef::kToken;
  std::vector<double> values;
};
struct HeldSite {
  std::optional<HeldCoef> read, keep, write;
};

// A mechanism with some coefficients held at given numbers instead of decided; they have no gradient into
// what would decide them. Everything else, also keep = 1 - gate beside a held write, is decided as before.
// Good for one pass at a time. keep and write can be held where all slots are rewritten (no site appends).
std::unique_ptr<Mechanism<double>> MakeHeld(std::unique_ptr<Mechanism<double>> mechanism,
                                            std::vector<HeldSite> sites);

}  // namespace strata

#endif  // STRATA_RESIDUAL_HELD_H_
