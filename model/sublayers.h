#ifndef STRATA_MODEL_SUBLAYERS_H_
#define STRATA_MODEL_SUBLAYERS_H_

#include <string>

#include "model/config.h"
#include "model/input_norm.h"
#include "model/weights.h"

namespace strata {

// A sublayer maps x [rows, dim] to its update u [rows, dim], its RMS norm included, the residual connection
// not. E is the storage type of everything that enters or leaves a matrix product.
//   Forward   u assigned; `saved` keeps what Backward needs
//   Backward  dx assigned, parameter gradients accumulated; x as in Forward

struct SequenceShape {
  int64_t batch = 0, length = 0;
  int64_t rows() const { return batch * length; }
};

// Buffers that all sublayers share: nothing in them outlives a call.
template <class E>
struct SublayerScratch {
  Buffer<E> du, dout, dwide;
  Buffer<float> dnormed;
};

// Keys and values of one attention sublayer, [batch, kv_heads, context, head_dim] each.
template <class E>
struct KeyValues {
  Buffer<E> keys, values;
  int64_t length = 0;  // tokens held
};

template <class E>
class AttentionSublayer {
 public:
  struct Saved {
    Buffer<E> normed, qkv, out;
    Buffer<float> rstd, lse;
  };
  // normed: its input is normalised already. rope: null where positions are not rotary; outlives the
  // sublayer.
  AttentionSublayer(const ModelConfig& config, const std::string& prefix, const RopeTable* rope, bool normed,
                    ParameterSet* parameters);
  void Forward(const Weights<E>& weights, SequenceShape shape, const float* x, Saved* saved, float* u) const;
  // The same for tokens that follow those in `past`; their keys and values are appended to it.
  void Extend(const Weights<E>& weights, SequenceShape shape, const float* x, Saved* saved,
              KeyValues<E>* past, float* u) const;
  void Backward(const Weights<E>& weights, SequenceShape shape, const float* x, const Saved& saved,
                const float* du, SublayerScratch<E>* scratch, float* dx) const;
  static int64_t SavedBytes(const ModelConfig& config, int64_t rows);

 private:
  int64_t Width() const { return (heads_ + 2 * kv_heads_) * head_dim_; }
  void Project(const Weights<E>& weights, SequenceShape shape, int64_t start, const float* x,
               Saved* saved) const;
  void TurnHeads(SequenceShape shape, int64_t start, Turn turn, E* qkv) const;
  void Output(const Weights<E>& weights, int64_t rows, const Saved& saved, float* u) const;

  int64_t dim_, heads_, kv_heads_, head_dim_, context_;
  const RopeTable* rope_;
  InputNorm<E> norm_;
  int qkv_, output_;
};

template <class E>
class MlpSublayer {
 public:
  struct Saved {
    Buffer<E> normed, wide, active;
    Buffer<float> rstd;
  };
  MlpSublayer(const ModelConfig& config, const std::string& prefix, bool normed, ParameterSet* parameters);
  void Forward(const Weights<E>& weights, int64_t rows, const float* x, Saved* saved, float* u) const;
  void Backward(const Weights<E>& weights, int64_t rows, const float* x, const Saved& saved, const float* du,
                SublayerScratch<E>* scratch, float* dx) const;
  static int64_t SavedBytes(const ModelConfig& config, int64_t rows);

 private:
  int64_t dim_, mlp_, wide_;
  bool gated_;
  InputNorm<E> norm_;
  int up_, down_;
};

}  // namespace strata

#endif  // STRATA_MODEL_SUBLAYERS_H_
