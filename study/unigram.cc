#include "study/unigram.h"

#include <cmath>
#include <vector>

#include "base/error.h"

namespace strata {

EvalResult EvaluateUnigram(const Corpus& corpus, int64_t context, int64_t windows) {
  std::vector<int64_t> counts(static_cast<size_t>(corpus.vocab), 1);
  for (const int32_t token : corpus.train) ++counts[static_cast<size_t>(token)];
  const auto total = static_cast<double>(corpus.train.size() + counts.size());
  EvalResult result;
  double nats = 0;
  const auto size = static_cast<int64_t>(corpus.validation.size());
  for (const Window& window : ValidationWindows(size, context, windows)) {
    for (int64_t i = window.begin + 1; i <= window.begin + context && i < size; ++i) {
      const auto at = static_cast<size_t>(i);
      const auto count = static_cast<double>(counts[static_cast<size_t>(corpus.validation[at])]);
      nats -= std::log(count / total);
      ++result.tokens;
      if (!corpus.validation_bytes.empty()) result.bytes += corpus.validation_bytes[at];
    }
  }
  if (result.tokens == 0) Fail("validation: expected at least 2 tokens, got {}", size);
  result.nats_per_token = nats / static_cast<double>(result.tokens);
  result.nats_per_byte = result.bytes > 0 ? nats / static_cast<double>(result.bytes) : 0;
  result.perplexity = std::exp(result.nats_per_token);
  return result;
}

}  // namespace strata
