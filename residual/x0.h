#ifndef STRATA_RESIDUAL_X0_H_
#define STRATA_RESIDUAL_X0_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// Learned weights on the running state and on the embedding, where a block begins:  h <- a h + b e.
//
// Two slots: e, never written again, and z. The state is h = c e + z, where the number c follows from the
// weights alone (0 at the start, where z = e):  c <- a c + b,  z <- a z, and updates are added to z. So the
// embedding is stored once and h nowhere.
extern const Description kX0Description;
template <class T>
std::unique_ptr<Mechanism<T>> MakeX0(OptionReader* options, const Size& size);

}  // namespace strata

#endif  // STRATA_RESIDUAL_X0_H_
