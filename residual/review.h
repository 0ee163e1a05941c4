#ifndef STRATA_RESIDUAL_REVIEW_H_
#define STRATA_RESIDUAL_REVIEW_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// Review Residuals (arXiv 2606.31859): a gate of every channel that looks at the state and at the proposed
// update before it is added. Decided after the sublayer.
//
// coefs.saved: 1 / rms of the state and of the update [tokens, 2].
extern const Description kReviewDescription;
template <class T>
std::unique_ptr<Mechanism<T>> MakeReview(OptionReader* options, const Size& size);

}  // namespace strata

#endif  // STRATA_RESIDUAL_REVIEW_H_
