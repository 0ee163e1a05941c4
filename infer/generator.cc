#include "infer/generator.h"

#include <algorithm>

#include "base/error.h"

namespace strata {

Generator::Generator(Decoder* decoder, int64_t vocab, const SamplerOptions& options)
    : decoder_(decoder),
      vocab_(std::min(vocab, decoder->config().vocab)),
      sampler_(options),
      logits_(decoder->config().vocab) {}

void Generator::Feed(const int32_t* tokens, int64_t count) {
  decoder_->Extend(cache_.get(), tokens, count, false, logits_.data());
}

// A new cache that holds the last `keep` tokens of the text.
void Generator::Restart(int64_t keep) {
  cache_ = decoder_->NewCache(1);
  const auto size = static_cast<int64_t>(text_.size());
  const int64_t count = std::min(size, keep);
  Feed(text_.data() + (size - count), count);
}

std::vector<int32_t> Generator::Generate(const std::vector<int32_t>& prompt, int64_t count,
                                         const std::function<bool(int32_t)>& on_token) {
  if (prompt.empty()) Fail("generate: expected a prompt of at least one token, got none");
  const int64_t context = decoder_->config().context;
  text_ = prompt;
  Restart(context);
  std::vector<int32_t> drawn;
  while (static_cast<int64_t>(drawn.size()) < count) {
    const int32_t token = sampler_.Next(logits_.data(), vocab_);
    drawn.push_back(token);
    text_.push_back(token);
    if (!on_token(token) || static_cast<int64_t>(drawn.size()) == count) break;
    if (cache_->length() < context) {
      Feed(&token, 1);
    } else {
      Restart(std::max<int64_t>(1, context / 2));
    }
  }
  return drawn;
}

}  // namespace strata
