#ifndef STRATA_RESIDUAL_MHC_H_
#define STRATA_RESIDUAL_MHC_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// Manifold-constrained hyper-connections (arXiv 2512.24880): the frame is Manifold's (manifold.h) and
//   keep = Sinkhorn(logits)  (to, from)          see sinkhorn.h
// form=paper has no eps (eq. 7-9). form=v4, the code of DeepSeek-V4, adds eps to read and in each step of
// Sinkhorn; that code stores keep transposed, here index order is (to, from). The sums to 1 are exact for
// rows (up to eps) and approximate for columns.
//
//   option      default   meaning
//   slots       4         n
//   iterations  20        of Sinkhorn, the softmax counted as the first division of columns
//   form        v4        v4 or paper
//   eps         1e-6      v4 only
//   norm-eps    1e-6      inside the mean square
//   collapse    mean      mean, sum or head
//
//   parameter                  shape              starts at                                          decays
//   sites.s.projection.weight  [n^2 + 2n, n dim]  0                                                  yes
//   sites.s.scale              [3]                0.01 (read, write, keep)                           no
//   sites.s.bias               [n^2 + 2n]         read: 3 at slot s mod n, else -3; write: 0;        no
//                                                 keep: 3 on the diagonal, else -3
// The read's bias gives every site a home slot: with equal biases the slots would stay equal for ever.
extern const Description kMhcDescription;
template <class T>
std::unique_ptr<Mechanism<T>> MakeMhc(OptionReader* options, const Size& size);

}  // namespace strata

#endif  // STRATA_RESIDUAL_MHC_H_
