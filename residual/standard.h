#ifndef STRATA_RESIDUAL_STANDARD_H_
#define STRATA_RESIDUAL_STANDARD_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// The plain residual connection: one slot,  x = S,  S' = S + u.  No parameters, no options.
extern const Description kStandardDescription;
template <class T>
std::unique_ptr<Mechanism<T>> MakeStandard(OptionReader* options, const Size& size);

}  // namespace strata

#endif  // STRATA_RESIDUAL_STANDARD_H_
