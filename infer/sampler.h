#ifndef STRATA_INFER_SAMPLER_H_
#define STRATA_INFER_SAMPLER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.h"

namespace strata {

struct SamplerOptions {
  double temperature = 1.0;  // 0: always the likeliest token
  int64_t top_k = 0;         // only the k likeliest; 0: all
  double top_p = 1.0;        // of those, the fewest whose probabilities sum to top_p
  int64_t seed = 1;

  template <class Self, class Visitor>
  static void Visit(Self& self, Visitor&& visit) {
    visit("temperature", self.temperature, "0: always the likeliest token");
    visit("top-k", self.top_k, "draw from the k likeliest tokens (0: all)");
    visit("top-p", self.top_p, "draw from the fewest tokens whose probability is at least this");
    visit("seed", self.seed, "seed of the draws");
  }
  void Check() const;  // exit 2
};

// Draws a token from logits. Ties go to the smaller id, so equal seeds draw equal texts.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);
  // logits [vocab]. Error if none is finite.
  int32_t Next(const float* logits, int64_t vocab);

 private:
  SamplerOptions options_;
  Random random_;
  std::vector<std::pair<double, int32_t>> candidates_;  // (logit, then probability; id)
};

}  // namespace strata

#endif  // STRATA_INFER_SAMPLER_H_
