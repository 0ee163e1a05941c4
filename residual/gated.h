#ifndef STRATA_RESIDUAL_GATED_H_
#define STRATA_RESIDUAL_GATED_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// Gated Residual (arXiv 2608.30320, eq. 30-34): n branches, read through a gate of every channel, written
// with one number a branch, never mixed. The read is normalised, so sublayers (and the head) have no norm of
// their own.
//
// coefs.saved: 1 / rms of each slot [tokens, slots], then the low-rank activation a [tokens, rank].
extern const Description kGatedDescription;
template <class T>
std::unique_ptr<Mechanism<T>> MakeGated(OptionReader* options, const Size& size);

}  // namespace strata

#endif  // STRATA_RESIDUAL_GATED_H_
