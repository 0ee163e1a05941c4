#include "model/config.h"

#include <cmath>

#include "base/error.h"
#include "residual/mechanism.h"

namespace strata {
namespace {

// Limits far beyond any machine, yet low enough that no product of them wraps around.
constexpr int64_t kMaxBlocks = 1 << 14;
constexpr int64_t kMaxDim = 1 << 17;
constexpr int64_t kMaxMlp = 1 << 20;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxContext = 1 << 24;
constexpr int64_t kMaxStateNumbers = int64_t{1} << 28;  // blocks * dim: per-site tables of a connection

void ExpectRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) FailUsage("--{}: expected {} to {}, got {}", name, low, high, value);
}

void ExpectOneOf(const char* name, const std::string& value, const char* a, const char* b) {
  if (value != a && value != b) FailUsage("--{}: expected {} or {}, got {}", name, a, b, value);
}

}  // namespace

void ModelConfig::Resolve() {
  ExpectRange("blocks", blocks, 1, kMaxBlocks);
  ExpectRange("dim", dim, 1, kMaxDim);
  ExpectRange("heads", heads, 1, dim);
  ExpectRange("kv-heads", kv_heads, 0, heads);
  ExpectRange("mlp", mlp, 0, kMaxMlp);
  ExpectRange("vocab", vocab, 2, kMaxVocab);
  ExpectRange("context", context, 1, kMaxContext);
  ExpectOneOf("activation", activation, "swiglu", "gelu");
  ExpectOneOf("positions", positions, "rope", "none");
  ExpectOneOf("head", head, "tied", "separate");
  if (!(norm_eps > 0 && norm_eps <= 1)) FailUsage("--norm-eps: expected above 0 to 1, got {}", norm_eps);
  if (blocks * dim > kMaxStateNumbers) {
    FailUsage("--blocks: expected blocks x dim of at most {}, got {} x {}", kMaxStateNumbers, blocks, dim);
  }
  if (dim % heads != 0) FailUsage("--heads: expected a divisor of --dim {}, got {}", dim, heads);
  if (positions == "rope" && head_dim() % 2 != 0) {
    FailUsage("--heads: expected an even width per head with --positions rope, got {} / {} = {}", dim, heads,
              head_dim());
  }
  if (kv_heads == 0) kv_heads = heads;
  if (heads % kv_heads != 0) {
    FailUsage("--kv-heads: expected a divisor of --heads {}, got {}", heads, kv_heads);
  }
  if (mlp == 0) mlp = activation == "gelu" ? 4 * dim : (8 * dim / 3 + 7) / 8 * 8;
  const ResidualSpec spec = ParseResidual(residual);
  const std::string equal =
      MakeMechanism<float>(spec, sites(), dim)->EqualForEver();  // checks the options, too
  if (!equal.empty()) FailUsage("--residual: {}", equal);
  residual = ToString(spec);
}

std::string ModelConfig::Caution() const {
  return MakeMechanism<float>(ParseResidual(residual), sites(), dim)->Caution();
}

}  // namespace strata
