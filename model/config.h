#ifndef STRATA_MODEL_CONFIG_H_
#define STRATA_MODEL_CONFIG_H_

#include <cstdint>
#include <string>

namespace strata {

// The shape of a decoder-only Transformer: everything that a checkpoint's weights depend on.
struct ModelConfig {
  std::string residual = "standard";  // NAME[:option=value,...]
  int64_t blocks = 4;
  int64_t dim = 128;
  int64_t heads = 4;
  int64_t kv_heads = 0;               // 0: as many as heads
  int64_t mlp = 0;                    // hidden width; 0: 4 * dim (gelu), 8/3 * dim rounded up to 8 (swiglu)
  std::string activation = "swiglu";  // swiglu, gelu
  std::string positions = "rope";     // rope, none
  std::string head = "tied";          // tied, separate
  int64_t vocab = 256;
  int64_t context = 256;  // longest sequence
  double norm_eps = 1e-5;

  int64_t head_dim() const { return dim / heads; }
  int sites() const { return static_cast<int>(2 * blocks); }

  // Each field once: name, reference, help. Drives the command line, JSON and the checkpoint.
  template <class Self, class Visitor>
  static void Visit(Self& self, Visitor&& visit) {
    visit("residual", self.residual, "residual connection, NAME[:option=value,...]");
    visit("blocks", self.blocks, "Transformer blocks (attention and MLP each)");
    visit("dim", self.dim, "width of the state");
    visit("heads", self.heads, "attention heads");
    visit("kv-heads", self.kv_heads, "key and value heads (0: as many as heads)");
    visit("mlp", self.mlp, "hidden width of the MLP (0: 4 dim for gelu, 8/3 dim for swiglu)");
    visit("activation", self.activation, "swiglu or gelu");
    visit("positions", self.positions, "rope or none");
    visit("head", self.head, "tied (to the embedding) or separate");
    visit("vocab", self.vocab, "vocabulary size (set by the tokenizer)");
    visit("context", self.context, "tokens per sequence");
    visit("norm-eps", self.norm_eps, "epsilon of the RMS norms");
  }

  // Fills the fields that 0 leaves open and checks all: exit 2 with `--name: expected X, got Y`.
  void Resolve();
  // What a user who trains this should know first, after Resolve; else "".
  std::string Caution() const;
};

}  // namespace strata

#endif  // STRATA_MODEL_CONFIG_H_
