#include "infer/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace strata {

void SamplerOptions::Check() const {
  if (!(temperature >= 0 && std::isfinite(temperature))) {
    FailUsage("--temperature: expected 0 or more, got {}", temperature);
  }
  if (top_k < 0) FailUsage("--top-k: expected 0 or more, got {}", top_k);
  if (!(top_p > 0 && top_p <= 1)) FailUsage("--top-p: expected above 0 to 1, got {}", top_p);
  if (seed < 0) FailUsage("--seed: expected 0 or more, got {}", seed);
}

Sampler::Sampler(const SamplerOptions& options)
    : options_(options), random_(static_cast<uint64_t>(options.seed), HashName("sampler")) {
  options_.Check();
}

int32_t Sampler::Next(const float* logits, int64_t vocab) {
  candidates_.clear();
  for (int64_t i = 0; i < vocab; ++i) {
    if (std::isfinite(logits[i])) candidates_.emplace_back(logits[i], static_cast<int32_t>(i));
  }
  if (candidates_.empty()) Fail("sampling: expected finite logits, got none");
  const auto likelier = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  if (options_.temperature == 0) {
    return std::min_element(candidates_.begin(), candidates_.end(), likelier)->second;
  }
  std::sort(candidates_.begin(), candidates_.end(), likelier);
  const auto k = static_cast<size_t>(options_.top_k);
  if (k > 0 && k < candidates_.size()) candidates_.resize(k);
  const double largest = candidates_[0].first;
  double sum = 0;
  for (auto& [weight, id] : candidates_) {
    weight = std::exp((weight - largest) / options_.temperature);
    sum += weight;
  }
  double kept = 0;
  size_t count = 0;
  while (count < candidates_.size() && (count == 0 || kept < options_.top_p * sum)) {
    kept += candidates_[count++].first;
  }
  double left = random_.Uniform() * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    left -= candidates_[i].first;
    if (left < 0) return candidates_[i].second;
  }
  return candidates_[count - 1].second;
}

}  // namespace strata
