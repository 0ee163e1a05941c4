#include <sentencepiece_trainer.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "model/bpe.h"

namespace strata {
namespace {

constexpr int64_t kReservedIds = 257;  // the unknown token and the 256 bytes
constexpr size_t kLongest = 4000;      // bytes of one training line; longer ones would be dropped
constexpr double kCoverage = 0.9995;   // rarer characters are left to the bytes

using Views = std::vector<std::string_view>;

// Calls f with each character of `text`, which is valid UTF-8.
template <class F>
void EachCharacter(std::string_view text, F&& f) {
  for (size_t begin = 0, end = 1; begin < text.size(); begin = end++) {
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    f(text.substr(begin, end - begin));
  }
}

Views SplitLines(const std::string& text) {
  Views lines;
  SplitForBpe(
      text, kLongest, [&](std::string_view line) { lines.push_back(line); }, [](std::string_view) {});
  return lines;
}

// The commonest characters that make up kCoverage of the text, at most `most` of them.
std::unordered_set<std::string_view> CommonCharacters(const Views& lines, int64_t most) {
  std::unordered_map<std::string_view, int64_t> counts;
  int64_t total = 0, covered = 0;
  for (const std::string_view line : lines) {
    EachCharacter(line, [&](std::string_view character) { ++counts[character], ++total; });
  }
  std::vector<std::pair<int64_t, std::string_view>> sorted;
  for (const auto& [character, count] : counts) sorted.emplace_back(-count, character);
  std::sort(sorted.begin(), sorted.end());
  std::unordered_set<std::string_view> common;
  for (const auto& [count, character] : sorted) {
    if (std::ssize(common) == most ||
        static_cast<double>(covered) >= kCoverage * static_cast<double>(total)) {
      break;
    }
    common.insert(character);
    covered -= count;
  }
  return common;
}

// The lines without all but the `most` commonest characters. Those left out end a line, as no piece holds
// them.
Views TrainingLines(const Views& lines, int64_t most) {
  const auto common = CommonCharacters(lines, most);
  Views kept;
  for (const std::string_view line : lines) {
    size_t begin = 0, at = 0;
    const auto end_line = [&] {
      if (at > begin) kept.push_back(line.substr(begin, at - begin));
    };
    EachCharacter(line, [&](std::string_view character) {
      const bool rare = !common.contains(character);
      if (rare) end_line();
      at += character.size();
      if (rare) begin = at;
    });
    end_line();
  }
  return kept;
}

class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const Views& lines) : lines_(lines) { Load(); }
  bool done() const override { return at_ >= lines_.size(); }
  void Next() override { ++at_, Load(); }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void Load() {
    if (!done()) value_ = lines_[at_];
  }
  const Views& lines_;
  size_t at_ = 0;
  std::string value_;
};

sentencepiece::util::Status Train(const Views& text, int64_t vocab, int64_t characters, std::string* model) {
  const Views kept = TrainingLines(text, characters);
  Lines lines(kept);
  return sentencepiece::SentencePieceTrainer::Train({{"model_type", "bpe"},
                                                     {"vocab_size", std::to_string(vocab)},
                                                     {"byte_fallback", "true"},
                                                     {"normalization_rule_name", "identity"},
                                                     {"add_dummy_prefix", "false"},
                                                     {"remove_extra_whitespaces", "false"},
                                                     {"character_coverage", "1.0"},
                                                     {"bos_id", "-1"},
                                                     {"eos_id", "-1"},
                                                     {"pad_id", "-1"},
                                                     {"num_threads", "1"},
                                                     {"input_sentence_size", "0"},
                                                     {"shuffle_input_sentence", "false"},
                                                     {"minloglevel", "3"}},
                                                    &lines, model);
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
  const Views lines = SplitLines(text);
  if (lines.empty()) Fail("text: expected some to train a tokenizer on, got {} bytes", text.size());
  // Half of the free ids for single characters leaves room for pairs in any script. A text with few pairs
  // gets all the characters it has; what does not fit then does not fit at all.
  std::string model, problem;
  const int64_t free = vocab - kReservedIds;
  for (const int64_t characters : {free / 2, free}) {
    const auto status = Train(lines, vocab, characters, &model);
    if (status.ok()) return MakeBpeTokenizer("trained tokenizer", model);
    problem = status.ToString();
  }
  const int64_t largest = Proposed(problem);
  if (largest == 0) Fail("text: expected to train {} tokens, got: {}", vocab, problem);
  if (largest < kReservedIds + 3)
    Fail("text: expected more of it to train tokens, got {} bytes", text.size());
  Fail("vocab: expected at most {} for this text, got {}", largest, vocab);
}

}  // namespace strata
