#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "model/data.h"

namespace strata {

Batches::Batches(const std::vector<int32_t>& tokens, int64_t context, uint64_t seed)
    : tokens_(&tokens), context_(context), seed_(seed) {
  if (context < 1) Fail("context: expected at least 1, got {}", context);
  const auto size = static_cast<int64_t>(tokens.size());
  if (size < context + 1) {
    Fail("text: expected at least {} training tokens (for context {}), got {}", context + 1, context, size);
  }
  Shuffle();
}

// Windows begin context tokens apart: each predicted token belongs to one window. Up to context - 1 tokens
// are left free for the offset, except where one window is all there is.
int64_t Batches::windows_per_epoch() const {
  return std::max<int64_t>(1, static_cast<int64_t>(tokens_->size()) / context_ - 1);
}

void Batches::Shuffle() {
  Random random(seed_, HashName("batches") + static_cast<uint64_t>(position_.epoch));
  const int64_t windows = windows_per_epoch();
  const int64_t free = static_cast<int64_t>(tokens_->size()) - 1 - windows * context_;
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random.Below(static_cast<uint64_t>(bound)));
  };
  offset_ = below(std::min(free, context_ - 1) + 1);
  order_.resize(static_cast<size_t>(windows));
  std::iota(order_.begin(), order_.end(), int64_t{0});
  for (int64_t i = windows - 1; i > 0; --i) {
    std::swap(order_[static_cast<size_t>(i)], order_[static_cast<size_t>(below(i + 1))]);
  }
}

void Batches::Next(int64_t batch, int32_t* tokens, int32_t* targets) {
  for (int64_t row = 0; row < batch; ++row) {
    if (position_.window == windows_per_epoch()) {
      position_ = {position_.epoch + 1, 0};
      Shuffle();
    }
    const int64_t window = order_[static_cast<size_t>(position_.window++)];
    const int32_t* begin = tokens_->data() + offset_ + window * context_;
    std::copy_n(begin, context_, tokens + row * context_);
    std::copy_n(begin + 1, context_, targets + row * context_);
  }
}

void Batches::set_position(Position position) {
  if (position.epoch < 0 || position.window < 0 || position.window > windows_per_epoch()) {
    Fail("data position: expected an epoch from 0 and a window of 0 to {}, got epoch {} window {}",
         windows_per_epoch(), position.epoch, position.window);
  }
  position_ = position;
  Shuffle();
}

std::vector<Window> ValidationWindows(int64_t tokens, int64_t context, int64_t limit) {
  const int64_t length = context + 1;
  if (context < 1 || limit < 1) {
    Fail("validation windows: expected a context and a limit of at least 1, got {} and {}", context, limit);
  }
  if (tokens < length) {
    Fail("validation: expected at least {} tokens (for context {}), got {}", length, context, tokens);
  }
  const int64_t count = std::min(limit, tokens / length);
  std::vector<Window> windows;
  for (int64_t i = 0; i < count; ++i) {
    // The gaps differ by at most one token; the first window is at the start, the last one at the end.
    const int64_t gap = count > 1 ? (tokens - length) / (count - 1) : 0;
    const int64_t rest = count > 1 ? (tokens - length) % (count - 1) : 0;
    windows.push_back({i * gap + std::min(i, rest)});
  }
  return windows;
}

}  // namespace strata
