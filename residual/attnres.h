#ifndef STRATA_RESIDUAL_ATTNRES_H_
#define STRATA_RESIDUAL_ATTNRES_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// Attention residuals (arXiv 2603.15031, block form; block = 1 is the full form). Slot 0 is the embedding,
// every further slot the sum of the updates of `block` neighbouring sites; the last one is open until its
// block ends.
//
//   score[k] = <query * gain, S_k> / sqrt(mean(S_k^2) + eps)       per token
//   x        = sum_k softmax(score)[k] * S_k                       the slots themselves, not normalised
//   write    opens a new slot where site % block == 0, else adds u to the last one
//
// There is no slot for a block before its first update. The head reads with a query of its own.
//
//   option  default            meaning
//   block   ceil(sites / 8)    sites (sublayers) per block
//   eps     1e-6               added to the mean square
//
//   parameter             shape  starts at   decays
//   sites.s.query         [dim]  0           no        all weights equal: x is the mean of the slots
//   sites.s.norm.weight   [dim]  1           no        the gain
//   head.query, head.norm.weight likewise
//
// coefs.saved: scores [tokens, slots], then 1 / sqrt(mean(S^2) + eps) [tokens, slots].
extern const Description kAttnResDescription;
template <class T>
std::unique_ptr<Mechanism<T>> MakeAttnRes(OptionReader* options, const Size& size);

}  // namespace strata

#endif  // STRATA_RESIDUAL_ATTNRES_H_
