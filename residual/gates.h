#ifndef STRATA_RESIDUAL_GATES_H_
#define STRATA_RESIDUAL_GATES_H_

#include <vector>

#include "base/parallel.h"
#include "ops/project.h"
#include "residual/mechanism.h"
#include "residual/token_sums.h"

namespace strata {

// From the gradients of write = gate and keep = 1 - gate (or 1) to that of the gate's logits, gate = sigmoid:
// dcoefs->write becomes it, [tokens, dim]; dbias [dim] accumulated.
template <class T>
void GateLogitsVjp(int64_t tokens, int64_t dim, bool keeps_rest, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                   T* dbias) {
  ParallelFor(tokens, kProjectRows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * dim; i < end * dim; ++i) {
      const T gate = coefs.write[i],
              dgate = keeps_rest ? dcoefs->write[i] - dcoefs->keep[i] : dcoefs->write[i];
      dcoefs->write[i] = dgate * gate * (T(1) - gate);
    }
  });
  const std::vector<double> sums = TokenSums(tokens, dim, dcoefs->write.data());
  for (int64_t d = 0; d < dim; ++d) dbias[d] += static_cast<T>(sums[static_cast<size_t>(d)]);
}

// The gate as those who look inside see it, [tokens, dim]: it is the write's coefficient.
template <class T>
Intermediate GateInside(int64_t tokens, int64_t dim, const Coefs<T>& coefs) {
  Intermediate gate{"gate", {dim}, {}};
  for (int64_t i = 0; i < tokens * dim; ++i) {
    gate.values.push_back(static_cast<double>(Real(coefs.write[i])));
  }
  return gate;
}

}  // namespace strata

#endif  // STRATA_RESIDUAL_GATES_H_
