#ifndef STRATA_RESIDUAL_HC_H_
#define STRATA_RESIDUAL_HC_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// Hyper-connections (arXiv 2409.19606): n slots, mixed at every site by an unconstrained matrix. Static: the
// tables alone. Dynamic: every slot k, normed by itself (N), adds coefficients of its own:
//
//   read[k]       = scale[0] tanh(<N(S_k), dynamic.read>)        + static.read[k]
//   write[k]      = scale[1] tanh(<N(S_k), dynamic.write>)       + static.write[k]
//   keep[to,from] = scale[0] tanh(<N(S_from), dynamic.keep[:,to]>) + static.keep[to,from]
//   x = sum_k read[k] S_k          S'_j = sum_k keep[j,k] S_k + write[j] u
//
//   option    default   meaning
//   slots     4         n
//   dynamic   true      false: only static.*, and none of tanh, norm
//   tanh      true      false: the product itself
//   norm      layer     layer (mean, variance, gain and bias) or rms (gain)
//   collapse  sum       sum, mean or head (see Collapse)
//   eps       1e-5      inside the norm's root, and that of collapse=head
//
//   parameter                           shape   starts at                        decays
//   sites.s.norm.weight, .bias          [d]     1, 0 (bias: norm=layer only)     no
//   sites.s.dynamic.read, .write        [d]     0                                yes
//   sites.s.dynamic.keep                [d, n]  0; column = to                   yes
//   sites.s.scale                       [2]     0.01: read and keep, write       no
//   sites.s.static.read, .write         [n]     1 at slot s mod n, else 0; 1     no
//   sites.s.static.keep                 [n, n]  the identity (to, from)          no
//
// coefs.saved, where dynamic: the terms after tanh, before the scale [tokens, n, 2 + n]: of slot k read,
// write, keep to every slot.
extern const Description kHcDescription;
template <class T>
std::unique_ptr<Mechanism<T>> MakeHc(OptionReader* options, const Size& size);

}  // namespace strata

#endif  // STRATA_RESIDUAL_HC_H_
