#ifndef STRATA_MODEL_DATA_H_
#define STRATA_MODEL_DATA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "model/tokenizer.h"

namespace strata {

// Tokens of a corpus, split once: the last tenth of the stream (at least one window) is for validation.
struct Corpus {
  std::vector<int32_t> train, validation;
  // UTF-8 bytes that the validation tokens decode to, per token: nats per byte needs them. 0 for ready-made
  // ids.
  std::vector<int32_t> validation_bytes;
  int64_t vocab = 0;
  std::string tokenizer_name, fingerprint;
};

// paths: text files, folders (all regular files inside, sorted by name, recursively), or *.bin token shards
// (header or headerless uint16). Errors name the path; too short: `expected at least N tokens, got M`.
Corpus LoadCorpus(const std::vector<std::string>& paths, const Tokenizer& tokenizer, int64_t context);
std::string ReadTexts(const std::vector<std::string>& paths);  // texts of files and folders, joined

// Endless, shuffled training windows: each epoch visits every window of context+1 tokens once, in an order
// drawn from (seed, epoch), starting at an offset drawn from the same. The position is two numbers, so a run
// can resume.
class Batches {
 public:
  struct Position {
    int64_t epoch = 0, window = 0;
  };
  Batches(const std::vector<int32_t>& tokens, int64_t context, uint64_t seed);
  // Fills tokens and targets [batch, context].
  void Next(int64_t batch, int32_t* tokens, int32_t* targets);
  Position position() const { return position_; }
  void set_position(Position position);
  int64_t windows_per_epoch() const;

 private:
  void Shuffle();
  const std::vector<int32_t>* tokens_;
  int64_t context_;
  uint64_t seed_;
  Position position_;
  int64_t offset_ = 0;
  std::vector<int64_t> order_;
};

// Fixed validation windows: at most `limit` windows of context+1 tokens, evenly spaced, never overlapping.
struct Window {
  int64_t begin;
};
std::vector<Window> ValidationWindows(int64_t tokens, int64_t context, int64_t limit);

}  // namespace strata

#endif  // STRATA_MODEL_DATA_H_
