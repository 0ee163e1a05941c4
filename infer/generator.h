#ifndef STRATA_INFER_GENERATOR_H_
#define STRATA_INFER_GENERATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "infer/sampler.h"
#include "model/decoder.h"

namespace strata {

// Continues one text token by token with cached keys and values. When the context is full, the window slides:
// the last half of it is fed again and generation goes on from there.
class Generator {
 public:
  // vocab: ids at or beyond it (padding of the model's vocabulary) are never drawn.
  Generator(Decoder* decoder, int64_t vocab, const SamplerOptions& options);
  // prompt: at least one token; of a longer one than the context only the last tokens are seen. Draws `count`
  // tokens; on_token sees each as it is drawn and ends the text by returning false.
  std::vector<int32_t> Generate(const std::vector<int32_t>& prompt, int64_t count,
                                const std::function<bool(int32_t)>& on_token);

 private:
  void Feed(const int32_t* tokens, int64_t count);
  void Restart(int64_t keep);

  Decoder* decoder_;
  int64_t vocab_;
  Sampler sampler_;
  std::unique_ptr<Decoder::Cache> cache_;
  std::vector<int32_t> text_;
  Buffer<float> logits_;
};

}  // namespace strata

#endif  // STRATA_INFER_GENERATOR_H_
