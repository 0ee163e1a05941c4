#ifndef STRATA_RESIDUAL_KROM_H_
#define STRATA_RESIDUAL_KROM_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// KromHC (arXiv 2601.21579): mHC whose mixing matrix is a Kronecker product of K doubly stochastic 2 x 2
// matrices, n = 2^K. The frame is Manifold's (manifold.h) and, with bit k of a slot's number as the index of
// factor k (factor 0: the fastest-moving one),
//   U_k  = a_k [[1, 0], [0, 1]] + b_k [[0, 1], [1, 0]]        (a_k, b_k) = softmax(logits[2k], logits[2k +
//   1]) keep = U_{K-1} (x) ... (x) U_0,   keep[to, from] = prod_k (a_k where bit k of to and from agree, else
//   b_k)
//
//   option      default   meaning
//   slots       4         n, a power of two
//   norm-eps    1e-6      inside the mean square
//   collapse    mean      mean, sum or head
//
//   parameter                  shape             starts at                                         decays
//   sites.s.projection.weight  [2n + 2K, n dim]  0                                                 yes
//   sites.s.scale              [3]               0.01 (read, write, keep)                          no
//   sites.s.bias               [2n + 2K]         read and write: 1 at slot s mod n, else -1;       no
//                                                keep: 0, -8 for each factor
extern const Description kKromDescription;
template <class T>
std::unique_ptr<Mechanism<T>> MakeKrom(OptionReader* options, const Size& size);

}  // namespace strata

#endif  // STRATA_RESIDUAL_KROM_H_
