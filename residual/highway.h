#ifndef STRATA_RESIDUAL_HIGHWAY_H_
#define STRATA_RESIDUAL_HIGHWAY_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// Gates of every channel, decided from the state before the sublayer runs:  t = sigmoid(W S + b).
//   highway     S' = (1 - t) S + t u      (Srivastava et al., arXiv 1505.00387)
//   state-gate  S' = S + t u              (the state-gated baseline of Review Residuals, arXiv 2606.31859)
extern const Description kHighwayDescription, kStateGateDescription;
template <class T>
std::unique_ptr<Mechanism<T>> MakeHighway(OptionReader* options, const Size& size);
template <class T>
std::unique_ptr<Mechanism<T>> MakeStateGate(OptionReader* options, const Size& size);

}  // namespace strata

#endif  // STRATA_RESIDUAL_HIGHWAY_H_
