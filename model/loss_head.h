#ifndef STRATA_MODEL_LOSS_HEAD_H_
#define STRATA_MODEL_LOSS_HEAD_H_

#include "model/config.h"
#include "model/input_norm.h"
#include "model/weights.h"

namespace strata {

// The end of the model: final RMS norm, projection to the vocabulary, cross-entropy. Logits exist for a chunk
// of rows at a time, so memory does not grow with rows x vocab.
template <class E>
class LossHead {
 public:
  // embedding: index of the tensor [vocab, dim] that a tied head shares. normed: its input is normalised
  // already.
  LossHead(const ModelConfig& config, int embedding, bool normed, ParameterSet* parameters);

  // Sum of the losses in nats over rows with target >= 0; losses [rows] stored if not null. With dx not null:
  // dx [rows, dim] assigned, parameter gradients accumulated, both of `scale` times the sum.
  double Loss(const Weights<E>& weights, int64_t rows, const float* x, const int32_t* targets, float scale,
              float* losses, float* dx);
  // logits [rows, vocab] assigned.
  void Logits(const Weights<E>& weights, int64_t rows, const float* x, float* logits);
  static int64_t Bytes(const ModelConfig& config, int64_t rows);

 private:
  static int64_t ChunkRows(int64_t vocab, int64_t rows);

  int64_t dim_, vocab_;
  InputNorm<E> norm_;
  int table_;
  Buffer<E> normed_, dlogits_;
  Buffer<float> rstd_, logits_, losses_, dnormed_;
};

}  // namespace strata

#endif  // STRATA_MODEL_LOSS_HEAD_H_
