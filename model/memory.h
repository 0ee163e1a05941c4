#ifndef STRATA_MODEL_MEMORY_H_
#define STRATA_MODEL_MEMORY_H_

#include <cstdint>
#include <string>

#include "model/decoder.h"

namespace strata {

int64_t
FreeBytes();  // memory that can be taken now (MemAvailable, and a container's limit); INT64_MAX if unknown
int64_t PeakBytes();  // largest resident size of this process so far; 0 if unknown

// What training one model takes, in bytes; computed before anything is allocated.
struct MemoryEstimate {
  int64_t parameters = 0, gradients = 0, moments = 0, activations = 0;
  int64_t total() const { return parameters + gradients + moments + activations; }
};
// Error (exit 2) when the sizes are beyond any machine.
MemoryEstimate EstimateMemory(const ModelConfig& config, int64_t batch, Precision precision);
std::string ToString(const MemoryEstimate& estimate);
// Error (exit 1) with both numbers and the option that helps most, when the estimate is beyond `free_bytes`.
void CheckMemory(const MemoryEstimate& estimate, int64_t free_bytes);

}  // namespace strata

#endif  // STRATA_MODEL_MEMORY_H_
