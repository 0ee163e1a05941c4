#ifndef STRATA_RESIDUAL_DENSE_H_
#define STRATA_RESIDUAL_DENSE_H_

#include <memory>

#include "residual/mechanism.h"

namespace strata {

// DenseFormer (arXiv 2402.02622): after every block a learned weighted mean over the outputs of all blocks so
// far and the embedding. With X_0 = e, X_i = Y_{i-1} + (the updates of block i) and Y_0 = e:
//   Y_i = sum_{j <= i} alpha_ij X_j        depth-weighted average after block i = 1 .. G
//
// Slots: the embedding and per block the sum B_i of its updates. X_i and Y_i are combinations of slots whose
// factors follow from the weights alone, so a site reads Y_i (where block i + 1 begins) or Y_i + B_{i+1}.
extern const Description kDenseDescription;
template <class T>
std::unique_ptr<Mechanism<T>> MakeDense(OptionReader* options, const Size& size);

}  // namespace strata

#endif  // STRATA_RESIDUAL_DENSE_H_
