#include "model/tokenizer.h"

#include "base/error.h"
#include "base/files.h"
#include "base/random.h"
#include "model/bpe.h"

namespace strata {
namespace {

void ExpectId(int32_t id, int64_t vocab) {
  if (id < 0 || id >= vocab) Fail("token: expected an id below {}, got {}", vocab, id);
}

class ByteTokenizer : public Tokenizer {
 public:
  int64_t vocab() const override { return 256; }
  std::vector<int32_t> Encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string Decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const int32_t id : ids) text += Piece(id);
    return text;
  }
  std::string Piece(int32_t id) const override {
    ExpectId(id, vocab());
    return std::string(1, static_cast<char>(id));
  }
  std::string name() const override { return "bytes"; }
  std::string fingerprint() const override { return "bytes"; }
  void Save(const std::string&) const override {}
};

class IdTokenizer : public Tokenizer {
 public:
  explicit IdTokenizer(int64_t vocab) : vocab_(vocab) {}
  int64_t vocab() const override { return vocab_; }
  std::vector<int32_t> Encode(std::string_view) const override {
    Fail("tokenizer: expected one that reads text, got ready-made ids");
  }
  std::string Decode(const std::vector<int32_t>& ids) const override {
    return fmt::format("{}", fmt::join(ids, " "));
  }
  std::string Piece(int32_t id) const override { return fmt::format("{} ", id); }
  std::string name() const override { return "ids"; }
  std::string fingerprint() const override { return "ids"; }
  void Save(const std::string&) const override {}

 private:
  int64_t vocab_;
};

// Length of the well-formed UTF-8 character that `text` (not empty) begins with, or 0 (Unicode, table 3-7).
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool outside = (lead == 0xED && second > 0x9F) || (lead == 0xF4 && second > 0x8F);
  return overlong || outside ? 0 : length;
}

}  // namespace

int64_t FindInvalidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = CharacterLength(text.substr(i, 4));
    if (length == 0) return static_cast<int64_t>(i);
    i += length;
  }
  return -1;
}

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> MakeIdTokenizer(int64_t vocab) {
  if (vocab < 0 || vocab > INT32_MAX) Fail("vocab: expected 0 to {}, got {}", INT32_MAX, vocab);
  return std::make_unique<IdTokenizer>(vocab);
}

std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& spec) {
  if (spec == "bytes") return MakeByteTokenizer();
  if (spec == "ids") return MakeIdTokenizer(0);
  if (spec.empty()) Fail("tokenizer: expected \"bytes\" or the path of a SentencePiece model, got \"\"");
  return MakeBpeTokenizer(spec, ReadFile(spec));
}

}  // namespace strata
