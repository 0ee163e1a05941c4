#ifndef STRATA_RESIDUAL_SCALED_H_
#define STRATA_RESIDUAL_SCALED_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// The plain residual connection with a learned factor on every update:  x = S,  S' = S + gain * u.
//   rezero       one gain per site, initially 0       (Bachlechner et al., arXiv 2003.04887)
//   layerscale   one gain per site and channel        (Touvron et al., arXiv 2103.17239)
extern const Description kReZeroDescription, kLayerScaleDescription;
template <class T>
std::unique_ptr<Mechanism<T>> MakeReZero(OptionReader* options, const Size& size);
template <class T>
std::unique_ptr<Mechanism<T>> MakeLayerScale(OptionReader* options, const Size& size);

}  // namespace strata

#endif  // STRATA_RESIDUAL_SCALED_H_
