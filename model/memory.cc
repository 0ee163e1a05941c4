#include "model/memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/progress.h"

namespace strata {
namespace {

// The number of KiB on the line `key` of a /proc file, in bytes; -1 if there is none.
int64_t ProcBytes(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(key, 0) != 0) continue;
    int64_t kib = 0;
    std::istringstream rest(line.substr(key.size()));
    if (rest >> kib) return kib * 1024;
  }
  return -1;
}

int64_t NumberIn(const char* path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : -1;  // "max" is not a number
}

}  // namespace

int64_t FreeBytes() {
  const int64_t available = ProcBytes("/proc/meminfo", "MemAvailable:");
  int64_t free_bytes = available < 0 ? INT64_MAX : available;
  const int64_t limit = NumberIn("/sys/fs/cgroup/memory.max");
  const int64_t used = NumberIn("/sys/fs/cgroup/memory.current");
  if (limit >= 0 && used >= 0) {
    // Cached file pages count as used but are given back on demand.
    const int64_t cached = std::max<int64_t>(0, [] {
      std::ifstream file("/sys/fs/cgroup/memory.stat");
      std::string key;
      int64_t value = 0;
      while (file >> key >> value) {
        if (key == "inactive_file") return value;
      }
      return int64_t{0};
    }());
    free_bytes = std::min(free_bytes, std::max<int64_t>(0, limit - used + cached));
  }
  return free_bytes;
}

int64_t PeakBytes() { return std::max<int64_t>(0, ProcBytes("/proc/self/status", "VmHWM:")); }

MemoryEstimate EstimateMemory(const ModelConfig& config, int64_t batch, Precision precision) {
  // In double first, and generously, so that nothing below can wrap around.
  const double rows = static_cast<double>(batch) * static_cast<double>(config.context);
  const double width = static_cast<double>(config.dim + config.mlp);
  const double numbers =
      rows * (static_cast<double>(config.vocab) + 256 * static_cast<double>(config.blocks) * width);
  if (numbers > 0x1p58) {
    FailUsage("--batch: expected a model and batch of less than 2^60 bytes, got about {}",
              FormatBytes(4 * numbers));
  }
  MemoryEstimate estimate;
  estimate.parameters = CheckedProduct(CountParameters(config), sizeof(float), "parameters");
  estimate.gradients = estimate.parameters;
  estimate.moments = CheckedProduct(estimate.parameters, 2, "moments");
  estimate.activations = Decoder::ActivationBytes(config, batch, config.context, precision);
  return estimate;
}

std::string ToString(const MemoryEstimate& e) {
  const auto show = [](int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); };
  return fmt::format("memory: {} (parameters {}, gradients {}, moments {}, activations {})", show(e.total()),
                     show(e.parameters), show(e.gradients), show(e.moments), show(e.activations));
}

void CheckMemory(const MemoryEstimate& estimate, int64_t free_bytes) {
  if (estimate.total() <= free_bytes) return;
  const bool activations = estimate.activations > estimate.total() / 2;
  Fail("memory: expected at most {} (free now), got {}; {}", FormatBytes(static_cast<double>(free_bytes)),
       FormatBytes(static_cast<double>(estimate.total())),
       activations ? "a smaller --batch (with more --accumulate) or --context helps"
                   : "a smaller --dim, --blocks or --vocab helps");
}

}  // namespace strata
