#ifndef STRATA_RESIDUAL_MHC_LITE_H_
#define STRATA_RESIDUAL_MHC_LITE_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// mHC-lite (arXiv 2601.05732): mHC whose mixing matrix is a weighted mean of all n! permutation matrices, and
// so doubly stochastic without iterations. The frame is Manifold's (manifold.h) and
//   keep = sum_p softmax(logits)[p] P_p     p in lexicographic order, the identity first;
//                                           P_p[to, from] = 1 where from = p(to)
//
//   option      default   meaning
//   slots       4         n, at most 5
//   norm-eps    1e-6      inside the mean square
//   collapse    mean      mean, sum or head
//
//   parameter                  shape             starts at                                         decays
//   sites.s.projection.weight  [2n + n!, n dim]  0                                                 yes
//   sites.s.scale              [3]               0.01 (read, write, keep)                          no
//   sites.s.bias               [2n + n!]         read and write: 1 at slot s mod n, else -1;       no
//                                                keep: 0 for the identity, else -8
extern const Description kMhcLiteDescription;
template <class T>
std::unique_ptr<Mechanism<T>> MakeMhcLite(OptionReader* options, const Size& size);

}  // namespace strata

#endif  // STRATA_RESIDUAL_MHC_LITE_H_
