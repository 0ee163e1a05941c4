#include <sentencepiece_trainer.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "base/error.h"
#include "model/bpe.h"

namespace strata {
namespace {

constexpr int64_t kReservedIds = 257;   // the unknown token and the 256 bytes
constexpr size_t kLongest = 4000;       // bytes of one training line; longer ones would be dropped
constexpr double kCoverage = 0.9995;    // rarer characters are left to the bytes
constexpr double kCoverageStep = 1e-6;  // more than the rounding of the trainer's 32-bit fraction

class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::string& text) {
    SplitForBpe(
        text, kLongest, [&](std::string_view line) { lines_.push_back(line); }, [](std::string_view) {});
    if (!lines_.empty()) value_ = lines_[0];
  }
  bool done() const override { return at_ >= lines_.size(); }
  void Next() override {
    if (++at_ < lines_.size()) value_ = lines_[at_];
  }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }
  bool empty() const { return lines_.empty(); }
  void Rewind() {
    at_ = 0;
    value_ = lines_[0];
  }
  // Share of the text that its `most` commonest characters make up.
  double Coverage(int64_t most) const;

 private:
  std::vector<std::string_view> lines_;
  size_t at_ = 0;
  std::string value_;
};

double Lines::Coverage(int64_t most) const {
  std::unordered_map<std::string_view, int64_t> counts;
  int64_t total = 0;
  for (const std::string_view line : lines_) {
    for (size_t begin = 0, end = 1; begin < line.size(); begin = end++) {
      while (end < line.size() && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) ++end;
      ++counts[line.substr(begin, end - begin)];
      ++total;
    }
  }
  std::vector<int64_t> sorted;
  for (const auto& [character, count] : counts) sorted.push_back(count);
  std::sort(sorted.rbegin(), sorted.rend());
  sorted.resize(std::min(sorted.size(), static_cast<size_t>(most)));
  int64_t covered = 0;
  for (const int64_t count : sorted) covered += count;
  return static_cast<double>(covered) / static_cast<double>(total);
}

// At most half of the free ids go to single characters, so that any vocabulary fits any script.
double CoverageFor(const Lines& lines, int64_t vocab) {
  const double fits = lines.Coverage(std::max<int64_t>(1, (vocab - kReservedIds) / 2)) - kCoverageStep;
  return std::clamp(fits, kCoverageStep, kCoverage);
}

sentencepiece::util::Status Train(Lines* lines, int64_t vocab, std::string* model) {
  lines->Rewind();
  return sentencepiece::SentencePieceTrainer::Train(
      {{"model_type", "bpe"},
       {"vocab_size", std::to_string(vocab)},
       {"byte_fallback", "true"},
       {"normalization_rule_name", "identity"},
       {"add_dummy_prefix", "false"},
       {"remove_extra_whitespaces", "false"},
       {"character_coverage", fmt::format("{:.8f}", CoverageFor(*lines, vocab))},
       {"bos_id", "-1"},
       {"eos_id", "-1"},
       {"pad_id", "-1"},
       {"num_threads", "1"},
       {"input_sentence_size", "0"},
       {"shuffle_input_sentence", "false"},
       {"minloglevel", "3"}},
      lines, model);
}

// The size that the trainer proposes in `... a value <= N.`, or 0 where the trouble is another.
int64_t Proposed(const std::string& message) {
  constexpr std::string_view kMark = "value <= ";
  const size_t at = message.find(kMark);
  int64_t size = 0;
  if (at != std::string::npos) {
    std::from_chars(message.data() + at + kMark.size(), message.data() + message.size(), size);
  }
  return size;
}

}  // namespace

std::unique_ptr<Tokenizer> TrainBpe(const std::string& text, int64_t vocab) {
  if (vocab < kReservedIds + 3 || vocab > INT32_MAX) {
    Fail("vocab: expected {} to {}, got {}", kReservedIds + 3, INT32_MAX, vocab);
  }
  ExpectUtf8("text", text);
  Lines lines(text);
  if (lines.empty()) Fail("text: expected some to train a tokenizer on, got {} bytes", text.size());
  std::string model;
  auto status = Train(&lines, vocab, &model);
  if (status.ok()) return MakeBpeTokenizer("trained tokenizer", model);
  // Fewer ids leave fewer characters and so fewer pairs: go down until the proposal holds.
  int64_t largest = Proposed(status.ToString());
  if (largest == 0) Fail("text: expected to train {} tokens, got: {}", vocab, status.ToString());
  while (largest >= kReservedIds + 3) {
    status = Train(&lines, largest, &model);
    const int64_t next = status.ok() ? 0 : Proposed(status.ToString());
    if (status.ok()) Fail("vocab: expected at most {} for this text, got {}", largest, vocab);
    if (next == 0 || next >= largest) break;
    largest = next;
  }
  Fail("text: expected enough of it for {} tokens, got {} bytes", vocab, text.size());
}

}  // namespace strata
