#ifndef STRATA_RESIDUAL_TOKEN_SUMS_H_
#define STRATA_RESIDUAL_TOKEN_SUMS_H_

#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "residual/decide.h"

namespace strata {

// Sums over tokens of values [tokens, numbers], in double and in an order that does not depend on the
// threads.
template <class T>
std::vector<double> TokenSums(int64_t tokens, int64_t numbers, const T* values) {
  constexpr int64_t kChunk = 64;  // tokens
  const int64_t chunks = (tokens + kChunk - 1) / kChunk;
  std::vector<double> of_chunks(static_cast<size_t>(chunks * numbers), 0.0),
      sums(static_cast<size_t>(numbers));
  double* all = of_chunks.data();
  ParallelFor(tokens, kChunk, [&](int64_t begin, int64_t end) {
    double* to = all + begin / kChunk * numbers;
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t i = 0; i < numbers; ++i) to[i] += static_cast<double>(Real(values[t * numbers + i]));
    }
  });
  for (int64_t c = 0; c < chunks; ++c) {
    for (int64_t i = 0; i < numbers; ++i) sums[static_cast<size_t>(i)] += all[c * numbers + i];
  }
  return sums;
}

}  // namespace strata

#endif  // STRATA_RESIDUAL_TOKEN_SUMS_H_
