#include "model/loss_head.h"

#include <algorithm>

#include "ops/matmul.h"
#include "ops/softmax.h"

namespace strata {

template <class E>
LossHead<E>::LossHead(const ModelConfig& config, int embedding, bool normed, ParameterSet* parameters)
    : dim_(config.dim),
      vocab_(config.vocab),
      norm_(config, "norm.weight", normed, parameters),
      table_(embedding) {
  if (config.head == "separate") {
    table_ = parameters->Add({"head.weight", {vocab_, dim_}, {Init::Kind::kNormal, 0.02, {}}, true});
  }
}

template <class E>
int64_t LossHead<E>::ChunkRows(int64_t vocab, int64_t rows) {
  constexpr int64_t kLogits = int64_t{1} << 21;  // 8 MiB of f32
  return std::clamp<int64_t>(kLogits / vocab, 64, std::max<int64_t>(rows, 64));
}

template <class E>
double LossHead<E>::Loss(const Weights<E>& weights, int64_t rows, const float* x, const int32_t* targets,
                         float scale, float* losses, float* dx) {
  norm_.Forward(weights, rows, x, &normed_, &rstd_);
  const int64_t chunk = ChunkRows(vocab_, rows);
  logits_.Resize(chunk * vocab_);
  losses_.Resize(rows);
  float* row_losses = losses != nullptr ? losses : losses_.data();
  if (dx != nullptr) {
    dlogits_.Resize(chunk * vocab_);
    dnormed_.Resize(rows * dim_);
  }
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const int64_t n = std::min(chunk, rows - begin);
    const E* normed = normed_.data() + begin * dim_;
    Matmul<E, float>({n, vocab_, dim_, dim_, dim_, vocab_, Op::kNone, Op::kTranspose}, normed,
                     weights.Get(table_), logits_.data());
    CrossEntropy<E>(n, vocab_, logits_.data(), targets + begin, scale, row_losses + begin,
                    dx != nullptr ? dlogits_.data() : nullptr);
    if (dx == nullptr) continue;
    Matmul<E, float>({vocab_, dim_, n, vocab_, dim_, dim_, Op::kTranspose}, dlogits_.data(), normed,
                     weights.Gradient(table_), Into::kAdd);
    Matmul<E, float>({n, dim_, vocab_, vocab_, dim_, dim_}, dlogits_.data(), weights.Get(table_),
                     dnormed_.data() + begin * dim_);
  }
  if (dx != nullptr) {
    norm_.Vjp(weights, rows, x, rstd_, dnormed_.data(), dx);
  }
  double sum = 0;
  for (int64_t r = 0; r < rows; ++r) sum += static_cast<double>(row_losses[r]);
  return sum;
}

template <class E>
void LossHead<E>::Logits(const Weights<E>& weights, int64_t rows, const float* x, float* logits) {
  norm_.Forward(weights, rows, x, &normed_, &rstd_);
  Matmul<E, float>({rows, vocab_, dim_, dim_, dim_, vocab_, Op::kNone, Op::kTranspose}, normed_.data(),
                   weights.Get(table_), logits);
}

template <class E>
int64_t LossHead<E>::Bytes(const ModelConfig& c, int64_t rows) {
  constexpr int64_t kElement = sizeof(E), kFloat = sizeof(float);
  return rows * (c.dim * (kElement + kFloat) + 2 * kFloat) +
         ChunkRows(c.vocab, rows) * c.vocab * (kFloat + kElement);
}

template class LossHead<float>;
template class LossHead<BFloat16>;

}  // namespace strata
