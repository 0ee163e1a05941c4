#ifndef STRATA_RESIDUAL_STANDARD_H_
#define STRATA_RESIDUAL_STANDARD_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// The plain residual connection: one slot,  x = S,  S' = S + u.  No parameters, no options.
template <class T>
std::unique_ptr<Mechanism<T>> MakeStandard(const ResidualSpec& spec, int sites, int64_t dim);

}  // namespace strata

#endif  // STRATA_RESIDUAL_STANDARD_H_
