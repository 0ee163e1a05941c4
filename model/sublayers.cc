#include "model/sublayers.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/attention.h"
#include "ops/matmul.h"

namespace strata {
namespace {

constexpr double kInitDeviation = 0.02;

// The last matrix of a sublayer starts smaller, so that the sum of 2 * blocks updates keeps its size (GPT-2).
Init OutputInit(const ModelConfig& config) {
  return {Init::Kind::kNormal, kInitDeviation / std::sqrt(2.0 * static_cast<double>(config.blocks)), {}};
}
Init MatrixInit() { return {Init::Kind::kNormal, kInitDeviation, {}}; }

// y [rows, out] = x [rows, in] W^T for a weight [out, in].
template <class E, class C>
void Linear(int64_t rows, int64_t in, int64_t out, const E* x, const E* weight, C* y) {
  Matmul<E, C>({rows, out, in, in, in, out, Op::kNone, Op::kTranspose}, x, weight, y);
}
// dx [rows, in] = dy [rows, out] W.
template <class E, class C>
void LinearVjpInput(int64_t rows, int64_t in, int64_t out, const E* dy, const E* weight, C* dx) {
  Matmul<E, C>({rows, in, out, out, in, in}, dy, weight, dx);
}
// dW [out, in] += dy^T x.
template <class E>
void LinearVjpWeight(int64_t rows, int64_t in, int64_t out, const E* dy, const E* x, float* dweight) {
  Matmul<E, float>({out, in, rows, out, in, in, Op::kTranspose}, dy, x, dweight, Into::kAdd);
}

// u's gradient in the products' type: itself in f32, a rounded copy in bf16.
const float* AsElement(int64_t, const float* du, Buffer<float>*) { return du; }
const BFloat16* AsElement(int64_t size, const float* du, Buffer<BFloat16>* copy) {
  copy->Resize(size);
  Convert(size, du, copy->data());
  return copy->data();
}

}  // namespace

template <class E>
AttentionSublayer<E>::AttentionSublayer(const ModelConfig& config, const std::string& prefix,
                                        const RopeTable* rope, bool normed, ParameterSet* parameters)
    : dim_(config.dim),
      heads_(config.heads),
      kv_heads_(config.kv_heads),
      head_dim_(config.head_dim()),
      context_(config.context),
      rope_(rope),
      norm_(config, prefix + "attention.norm.weight", normed, parameters) {
  qkv_ = parameters->Add({prefix + "attention.qkv.weight", {Width(), dim_}, MatrixInit(), true});
  output_ = parameters->Add(
      {prefix + "attention.output.weight", {dim_, heads_ * head_dim_}, OutputInit(config), true});
}

template <class E>
void AttentionSublayer<E>::TurnHeads(SequenceShape shape, int64_t start, Turn turn, E* qkv) const {
  if (rope_ == nullptr) return;
  Rope({shape.rows(), shape.length, start, heads_ + kv_heads_, Width()}, *rope_, turn, qkv);
}

template <class E>
void AttentionSublayer<E>::Project(const Weights<E>& weights, SequenceShape shape, int64_t start,
                                   const float* x, Saved* saved) const {
  const int64_t rows = shape.rows();
  saved->qkv.Resize(rows * Width());
  saved->out.Resize(rows * heads_ * head_dim_);
  saved->lse.Resize(rows * heads_);
  norm_.Forward(weights, rows, x, &saved->normed, &saved->rstd);
  Linear<E, E>(rows, dim_, Width(), saved->normed.data(), weights.Get(qkv_), saved->qkv.data());
  TurnHeads(shape, start, Turn::kForward, saved->qkv.data());
}

template <class E>
void AttentionSublayer<E>::Output(const Weights<E>& weights, int64_t rows, const Saved& saved,
                                  float* u) const {
  Linear<E, float>(rows, heads_ * head_dim_, dim_, saved.out.data(), weights.Get(output_), u);
}

// Queries, keys and values side by side in one row: [q of all heads | k of kv heads | v of kv heads].
static AttentionDims RowDims(SequenceShape shape, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  const int64_t width = (heads + 2 * kv_heads) * head_dim;
  const HeadStrides inside{width, head_dim, shape.length * width};
  const HeadStrides out{heads * head_dim, head_dim, shape.length * heads * head_dim};
  return {shape.batch, shape.length, 0, heads, kv_heads, head_dim, inside, inside, out};
}

template <class E>
void AttentionSublayer<E>::Forward(const Weights<E>& weights, SequenceShape shape, const float* x,
                                   Saved* saved, float* u) const {
  Project(weights, shape, 0, x, saved);
  const E* qkv = saved->qkv.data();
  const E* key = qkv + heads_ * head_dim_;
  Attention(RowDims(shape, heads_, kv_heads_, head_dim_), qkv, key, key + kv_heads_ * head_dim_,
            saved->out.data(), saved->lse.data());
  Output(weights, shape.rows(), *saved, u);
}

template <class E>
void AttentionSublayer<E>::Extend(const Weights<E>& weights, SequenceShape shape, const float* x,
                                  Saved* saved, KeyValues<E>* past, float* u) const {
  Project(weights, shape, past->length, x, saved);
  AttentionDims dims = RowDims(shape, heads_, kv_heads_, head_dim_);
  dims.past = past->length;
  dims.key = {head_dim_, context_ * head_dim_, kv_heads_ * context_ * head_dim_};
  for (int64_t row = 0; row < shape.rows(); ++row) {
    const int64_t sequence = row / shape.length, position = past->length + row % shape.length;
    const E* key = saved->qkv.data() + row * Width() + heads_ * head_dim_;
    for (int64_t h = 0; h < kv_heads_; ++h) {
      const int64_t at = sequence * dims.key.sequence + h * dims.key.head + position * head_dim_;
      std::copy_n(key + h * head_dim_, head_dim_, past->keys.data() + at);
      std::copy_n(key + (kv_heads_ + h) * head_dim_, head_dim_, past->values.data() + at);
    }
  }
  Attention(dims, saved->qkv.data(), past->keys.data(), past->values.data(), saved->out.data(),
            saved->lse.data());
  past->length += shape.length;
  Output(weights, shape.rows(), *saved, u);
}

template <class E>
void AttentionSublayer<E>::Backward(const Weights<E>& weights, SequenceShape shape, const float* x,
                                    const Saved& saved, const float* du, SublayerScratch<E>* scratch,
                                    float* dx) const {
  const int64_t rows = shape.rows(), inner = heads_ * head_dim_;
  const E* gradient = AsElement(rows * dim_, du, &scratch->du);
  scratch->dout.Resize(rows * inner);
  scratch->dwide.Resize(rows * Width());
  scratch->dnormed.Resize(rows * dim_);
  LinearVjpWeight(rows, inner, dim_, gradient, saved.out.data(), weights.Gradient(output_));
  LinearVjpInput<E, E>(rows, inner, dim_, gradient, weights.Get(output_), scratch->dout.data());
  const E* qkv = saved.qkv.data();
  E* dqkv = scratch->dwide.data();
  const int64_t key = inner, value = inner + kv_heads_ * head_dim_;
  AttentionVjp(RowDims(shape, heads_, kv_heads_, head_dim_), qkv, qkv + key, qkv + value, saved.out.data(),
               saved.lse.data(), scratch->dout.data(), dqkv, dqkv + key, dqkv + value);
  TurnHeads(shape, 0, Turn::kBack, dqkv);
  LinearVjpWeight(rows, dim_, Width(), dqkv, saved.normed.data(), weights.Gradient(qkv_));
  LinearVjpInput<E, float>(rows, dim_, Width(), dqkv, weights.Get(qkv_), scratch->dnormed.data());
  norm_.Vjp(weights, rows, x, saved.rstd, scratch->dnormed.data(), dx);
}

template <class E>
int64_t AttentionSublayer<E>::SavedBytes(const ModelConfig& c, int64_t rows) {
  const int64_t elements = c.dim + (2 * c.heads + 2 * c.kv_heads) * c.head_dim();
  return rows * (elements * int64_t{sizeof(E)} + (1 + c.heads) * int64_t{sizeof(float)});
}

template <class E>
MlpSublayer<E>::MlpSublayer(const ModelConfig& config, const std::string& prefix, bool normed,
                            ParameterSet* parameters)
    : dim_(config.dim),
      mlp_(config.mlp),
      wide_(config.activation == "swiglu" ? 2 * config.mlp : config.mlp),
      gated_(config.activation == "swiglu"),
      norm_(config, prefix + "mlp.norm.weight", normed, parameters) {
  up_ = parameters->Add({prefix + "mlp.up.weight", {wide_, dim_}, MatrixInit(), true});
  down_ = parameters->Add({prefix + "mlp.down.weight", {dim_, mlp_}, OutputInit(config), true});
}

template <class E>
void MlpSublayer<E>::Forward(const Weights<E>& weights, int64_t rows, const float* x, Saved* saved,
                             float* u) const {
  saved->wide.Resize(rows * wide_);
  saved->active.Resize(rows * mlp_);
  norm_.Forward(weights, rows, x, &saved->normed, &saved->rstd);
  Linear<E, E>(rows, dim_, wide_, saved->normed.data(), weights.Get(up_), saved->wide.data());
  if (gated_) {
    SwiGlu(rows, mlp_, saved->wide.data(), saved->active.data());
  } else {
    Gelu(rows * mlp_, saved->wide.data(), saved->active.data());
  }
  Linear<E, float>(rows, mlp_, dim_, saved->active.data(), weights.Get(down_), u);
}

template <class E>
void MlpSublayer<E>::Backward(const Weights<E>& weights, int64_t rows, const float* x, const Saved& saved,
                              const float* du, SublayerScratch<E>* scratch, float* dx) const {
  const E* gradient = AsElement(rows * dim_, du, &scratch->du);
  scratch->dout.Resize(rows * mlp_);
  scratch->dwide.Resize(rows * wide_);
  scratch->dnormed.Resize(rows * dim_);
  LinearVjpWeight(rows, mlp_, dim_, gradient, saved.active.data(), weights.Gradient(down_));
  LinearVjpInput<E, E>(rows, mlp_, dim_, gradient, weights.Get(down_), scratch->dout.data());
  if (gated_) {
    SwiGluVjp(rows, mlp_, saved.wide.data(), scratch->dout.data(), scratch->dwide.data());
  } else {
    GeluVjp(rows * mlp_, saved.wide.data(), scratch->dout.data(), scratch->dwide.data());
  }
  LinearVjpWeight(rows, dim_, wide_, scratch->dwide.data(), saved.normed.data(), weights.Gradient(up_));
  LinearVjpInput<E, float>(rows, dim_, wide_, scratch->dwide.data(), weights.Get(up_),
                           scratch->dnormed.data());
  norm_.Vjp(weights, rows, x, saved.rstd, scratch->dnormed.data(), dx);
}

template <class E>
int64_t MlpSublayer<E>::SavedBytes(const ModelConfig& c, int64_t rows) {
  const int64_t wide = c.activation == "swiglu" ? 2 * c.mlp : c.mlp;
  return rows * ((c.dim + wide + c.mlp) * int64_t{sizeof(E)} + int64_t{sizeof(float)});
}

template class AttentionSublayer<float>;
template class AttentionSublayer<BFloat16>;
template class MlpSublayer<float>;
template class MlpSublayer<BFloat16>;

}  // namespace strata
