#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/trainer.h"

namespace strata {
namespace {

// Scores windows that begin at `begins`, each of context inputs and their next tokens; what lies beyond the
// end of the tokens is padding and not counted.
EvalResult Score(Decoder* decoder, const std::vector<int32_t>& tokens,
                 const std::vector<int32_t>& bytes_per_token, const std::vector<Window>& windows,
                 int64_t length, int64_t batch) {
  const auto size = static_cast<int64_t>(tokens.size());
  EvalResult result;
  double nats = 0;
  std::vector<int32_t> inputs, targets;
  for (size_t first = 0; first < windows.size(); first += static_cast<size_t>(batch)) {
    const size_t last = std::min(windows.size(), first + static_cast<size_t>(batch));
    inputs.clear(), targets.clear();
    for (size_t w = first; w < last; ++w) {
      for (int64_t i = windows[w].begin; i < windows[w].begin + length; ++i) {
        const bool counted = i + 1 < size;
        inputs.push_back(i < size ? tokens[static_cast<size_t>(i)] : 0);
        targets.push_back(counted ? tokens[static_cast<size_t>(i + 1)] : -1);
        if (!counted) continue;
        ++result.tokens;
        if (!bytes_per_token.empty()) result.bytes += bytes_per_token[static_cast<size_t>(i + 1)];
      }
    }
    nats += decoder->Evaluate(inputs.data(), targets.data(), static_cast<int64_t>(last - first), length);
  }
  if (result.tokens == 0) Fail("evaluation: expected at least 2 tokens, got {}", size);
  result.nats_per_token = nats / static_cast<double>(result.tokens);
  result.nats_per_byte = result.bytes > 0 ? nats / static_cast<double>(result.bytes) : 0;
  result.perplexity = std::exp(result.nats_per_token);
  return result;
}

}  // namespace

EvalResult EvaluateWindows(Decoder* decoder, const std::vector<int32_t>& tokens,
                           const std::vector<int32_t>& bytes_per_token, int64_t windows, int64_t batch) {
  const int64_t context = decoder->config().context;
  return Score(decoder, tokens, bytes_per_token,
               ValidationWindows(static_cast<int64_t>(tokens.size()), context, windows), context, batch);
}

EvalResult EvaluateAll(Decoder* decoder, const std::vector<int32_t>& tokens,
                       const std::vector<int32_t>& bytes_per_token, int64_t batch) {
  const auto size = static_cast<int64_t>(tokens.size());
  const int64_t length = std::min(decoder->config().context, std::max<int64_t>(1, size - 1));
  std::vector<Window> windows;
  for (int64_t begin = 0; begin + 1 < size; begin += length) windows.push_back({begin});
  return Score(decoder, tokens, bytes_per_token, windows, length, batch);
}

}  // namespace strata
