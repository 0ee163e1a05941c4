#ifndef STRATA_MODEL_TOKENIZER_H_
#define STRATA_MODEL_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// Text to token ids and back. Three kinds: bytes (256 ids, any input), a SentencePiece model (valid UTF-8
// only) and ready-made ids (no text at all).
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab() const = 0;
  virtual std::vector<int32_t> Encode(
      std::string_view text) const = 0;  // Error on invalid UTF-8 (BPE), with offset
  virtual std::string Decode(const std::vector<int32_t>& ids) const = 0;
  // Text that id adds to the text so far; streams concatenate to Decode up to a leading space.
  virtual std::string Piece(int32_t id) const = 0;
  virtual std::string name() const = 0;                  // "bytes", "bpe" or "ids" (ready-made shards)
  virtual std::string fingerprint() const = 0;           // identifies the mapping; stored in the checkpoint
  virtual void Save(const std::string& path) const = 0;  // no-op for bytes
};

std::unique_ptr<Tokenizer> MakeByteTokenizer();
// For ready-made ids: Encode is an Error, Decode prints the ids separated by blanks. vocab 0: open, the data
// decides.
std::unique_ptr<Tokenizer> MakeIdTokenizer(int64_t vocab);
// "bytes", "ids" or the path of a SentencePiece model.
std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& spec);
// Trains a BPE with byte fallback on the text and returns it: Decode(Encode(x)) == x for all valid UTF-8. The
// result depends on text and vocab alone. Error if the text cannot support the vocabulary; it names the
// largest one that it can.
std::unique_ptr<Tokenizer> TrainBpe(const std::string& text, int64_t vocab);

// Offset of the first byte that is not part of well-formed UTF-8, or -1.
int64_t FindInvalidUtf8(std::string_view text);

}  // namespace strata

#endif  // STRATA_MODEL_TOKENIZER_H_
