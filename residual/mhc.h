#ifndef STRATA_RESIDUAL_MHC_H_
#define STRATA_RESIDUAL_MHC_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// Manifold-constrained hyper-connections (arXiv 2512.24880): n slots, mixed at every site by a matrix close
// to a doubly stochastic one. Per token, with v all n slots as one vector of n dim numbers:
//
//   logits = scale * (projection v / sqrt(mean(v^2) + norm_eps)) + bias      in the order read, write, keep
//   read   = sigmoid(logits) + eps            write = 2 sigmoid(logits)      keep = Sinkhorn(logits)  (to,
//   from) x      = sum_k read[k] S_k                S'_j  = sum_k keep[j,k] S_k + write[j] u
//
// form=paper has no eps (eq. 7-9). form=v4, the code of DeepSeek-V4, adds eps to read and in each step of
// Sinkhorn; that code stores keep transposed, here index order is (to, from). The sums to 1 are exact for
// rows (up to eps) and approximate for columns. Head: collapse=mean (1/n), sum, or head: read = sigmoid(scale
// * projection v / rms v + bias) + eps.
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
//   head.projection.weight     [n, n dim]         0                     with collapse=head           yes
//   head.scale, head.bias      [1], [n]           0.01, -log(n - 1) (weights of 1/n; n = 1: 3)       no
// The read's bias gives every site a home slot: with equal biases the slots would stay equal for ever.
//
// coefs.saved: projection v / rms v [tokens, n^2 + 2n], then 1 / rms v [tokens].
extern const Description kMhcDescription;
template <class T>
std::unique_ptr<Mechanism<T>> MakeMhc(OptionReader* options, const Size& size);

}  // namespace strata

#endif  // STRATA_RESIDUAL_MHC_H_
