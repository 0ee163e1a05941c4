#ifndef STRATA_RESIDUAL_ATTNRES_H_
#define STRATA_RESIDUAL_ATTNRES_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// Attention residuals (arXiv 2603.15031, block form; block = 1 is the full form), with the paper's ablations
// as options. Slot 0 is the embedding, every further slot the sum of the updates of `block` neighbouring
// sites; the last one is open until its block ends. There is no slot for a block before its first update.
//
// coefs.saved: scores [tokens, slots, heads], then 1 / rms of the keys [tokens, slots] (1 without key norm);
// with query=input then the queries [tokens, dim] and 1 / rms of the newest slot [tokens].
extern const Description kAttnResDescription;
template <class T>
std::unique_ptr<Mechanism<T>> MakeAttnRes(OptionReader* options, const Size& size);

}  // namespace strata

#endif  // STRATA_RESIDUAL_ATTNRES_H_
