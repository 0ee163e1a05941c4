#include "model/bpe.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/files.h"
#include "base/random.h"

namespace strata {
namespace {

constexpr std::string_view kBlank = "\xE2\x96\x81";     // stands for a blank inside pieces
constexpr std::string_view kReserved = "\xE2\x96\x85";  // SentencePiece's trainer skips lines with it
constexpr size_t kLongest = 8192;

// Bytes of the character at the start of `text` that no piece holds, or 0 if it may be part of one.
size_t SingleLength(std::string_view text) {
  const char c = text[0];
  if (c == '\n' || c == '\r' || c == '\t' || c == '\0') return 1;
  return text.starts_with(kBlank) || text.starts_with(kReserved) ? kBlank.size() : 0;
}

bool InsideCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Where to cut a stretch that is too long: before its last blank, else before a character.
size_t Cut(std::string_view text, size_t longest) {
  const size_t blank = text.rfind(' ', longest);
  if (blank != 0 && blank != std::string_view::npos) return blank;
  size_t cut = longest;
  while (cut > 1 && InsideCharacter(text[cut])) --cut;
  return cut;
}

std::string Plain(std::string piece) {
  for (size_t at = 0; (at = piece.find(kBlank, at)) != std::string::npos; ++at) {
    piece.replace(at, kBlank.size(), " ");
  }
  return piece;
}

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(const std::string& where, const std::string& model) : model_(model) {
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok() || processor_.GetPieceSize() == 0) {
      Fail("{}: expected a SentencePiece model, got another kind of file", where);
    }
    FillPieces();
    exact_ = RoundTrips();
  }

  int64_t vocab() const override { return processor_.GetPieceSize(); }
  std::vector<int32_t> Encode(std::string_view text) const override {
    ExpectUtf8("text", text);
    std::vector<int32_t> ids;
    if (!exact_) {
      Append(text, &ids);
      return ids;
    }
    SplitForBpe(
        text, kLongest, [&](std::string_view part) { Append(part, &ids); },
        [&](std::string_view bytes) {
          for (const char c : bytes) ids.push_back(bytes_[static_cast<unsigned char>(c)]);
        });
    return ids;
  }
  std::string Decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    for (const int32_t id : ids) text += Piece(id);
    // Models that put a blank before the text take it away again.
    if (!exact_ && leading_blank_ && text.starts_with(' ')) text.erase(0, 1);
    return text;
  }
  std::string Piece(int32_t id) const override {
    if (id < 0 || id >= vocab()) Fail("token: expected an id below {}, got {}", vocab(), id);
    return pieces_[static_cast<size_t>(id)];
  }
  std::string name() const override { return "bpe"; }
  std::string fingerprint() const override { return fmt::format("{:016x}", HashName(model_)); }
  void Save(const std::string& path) const override { WriteFileAtomically(path, model_); }

 private:
  void Append(std::string_view text, std::vector<int32_t>* ids) const {
    std::vector<int> part;
    const auto status = processor_.Encode(text, &part);
    if (!status.ok()) Fail("text: expected to encode {} bytes, got: {}", text.size(), status.ToString());
    ids->insert(ids->end(), part.begin(), part.end());
  }

  void FillPieces() {
    bytes_.fill(-1);
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      std::string text;
      if (processor_.IsByte(id)) {  // <0xHH>
        const auto value = static_cast<unsigned char>(std::stoi(piece.substr(3, 2), nullptr, 16));
        bytes_[value] = id;
        text = std::string(1, static_cast<char>(value));
      } else if (processor_.IsUnknown(id)) {
        text = "\xEF\xBF\xBD";  // the replacement character
      } else if (!processor_.IsControl(id)) {
        text = Plain(piece);
      }
      pieces_.push_back(text);
    }
  }

  // Whether pieces give back what was encoded: a model with byte fallback that neither adds, drops nor
  // rewrites characters. The probe has blanks at the ends and doubled, a ligature and a rare letter.
  bool RoundTrips() {
    const std::string probe = "  a  b \xEF\xAC\x81\xF0\x90\x8D\x88 ";
    std::vector<int32_t> ids;
    Append("a", &ids);
    leading_blank_ = !ids.empty() && pieces_[static_cast<size_t>(ids[0])].starts_with(' ');
    ids.clear();
    Append(probe, &ids);
    std::string text;
    for (const int32_t id : ids) text += pieces_[static_cast<size_t>(id)];
    return text == probe && std::count(bytes_.begin(), bytes_.end(), -1) == 0;
  }

  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> pieces_;
  std::array<int32_t, 256> bytes_;
  bool exact_ = false, leading_blank_ = false;
};

}  // namespace

void SplitForBpe(std::string_view input, size_t longest, const std::function<void(std::string_view)>& text,
                 const std::function<void(std::string_view)>& single) {
  while (!input.empty()) {
    size_t length = 0;
    while (length < input.size() && length <= longest && SingleLength(input.substr(length, 3)) == 0) ++length;
    if (length > longest) length = Cut(input, longest);
    if (length > 0) {
      text(input.substr(0, length));
    } else {
      length = SingleLength(input);
      single(input.substr(0, length));
    }
    input.remove_prefix(length);
  }
}

void ExpectUtf8(const std::string& where, std::string_view text) {
  const int64_t offset = FindInvalidUtf8(text);
  if (offset < 0) return;
  Fail("{}: expected valid UTF-8, got the byte 0x{:02x} at offset {}", where,
       static_cast<unsigned char>(text[static_cast<size_t>(offset)]), offset);
}

std::unique_ptr<Tokenizer> MakeBpeTokenizer(const std::string& where, const std::string& model) {
  return std::make_unique<BpeTokenizer>(where, model);
}

}  // namespace strata
