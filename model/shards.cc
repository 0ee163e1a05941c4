#include "model/shards.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/files.h"

namespace strata {
namespace {

constexpr uint32_t kMagic = 20240520, kVersion = 1;
constexpr size_t kHeaderBytes = 256 * sizeof(int32_t);

// First numbers of files that lie beside such shards: models, their states, tokenizers, evaluation sets and
// shards of 32-bit tokens.
constexpr std::array<uint32_t, 6> kOtherMagics = {20240326, 20240327, 20240328, 20240522, 20240801, 20240803};

uint32_t Byte(std::string_view bytes, size_t at) { return static_cast<unsigned char>(bytes[at]); }

uint32_t Word(std::string_view bytes, size_t index) {
  const size_t at = 4 * index;
  return Byte(bytes, at) | Byte(bytes, at + 1) << 8 | Byte(bytes, at + 2) << 16 | Byte(bytes, at + 3) << 24;
}

bool KnownMagic(uint32_t magic) {
  return magic == kMagic || magic == __builtin_bswap32(kMagic) ||
         std::find(kOtherMagics.begin(), kOtherMagics.end(), magic) != kOtherMagics.end();
}

// A header's numbers after magic, version and count are zero: tokens hardly ever look like that.
bool LooksLikeHeader(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes) return false;
  const std::string_view rest = bytes.substr(12, kHeaderBytes - 12);
  return Word(bytes, 1) != 0 && std::all_of(rest.begin(), rest.end(), [](char c) { return c == 0; });
}

// Bytes before the first token: 0 without a header.
size_t CheckHeader(const std::string& path, std::string_view bytes) {
  if (bytes.size() < 4 || !(KnownMagic(Word(bytes, 0)) || LooksLikeHeader(bytes))) return 0;
  const uint32_t magic = Word(bytes, 0);
  if (magic == kMagic && bytes.size() < kHeaderBytes) {
    Fail("{}: expected a header of {} bytes, got only {}", path, kHeaderBytes, bytes.size());
  }
  if (magic != kMagic || Word(bytes, 1) != kVersion) {
    const std::string version = bytes.size() < 8 ? "none" : std::to_string(Word(bytes, 1));
    Fail("{}: expected magic {} version {}, got magic {} version {}", path, kMagic, kVersion, magic, version);
  }
  const uint64_t expected = kHeaderBytes + uint64_t{2} * Word(bytes, 2);
  if (bytes.size() != expected) {
    Fail("{}: expected {} bytes for the {} tokens of its header, got {}", path, expected, Word(bytes, 2),
         bytes.size());
  }
  return kHeaderBytes;
}

}  // namespace

void ReadShard(const std::string& path, int64_t vocab, std::vector<int32_t>* tokens) {
  const std::string contents = ReadFile(path);
  const std::string_view bytes = contents;
  const size_t begin = CheckHeader(path, bytes);
  if (bytes.empty()) Fail("{}: expected uint16 tokens, got an empty file", path);
  if ((bytes.size() - begin) % 2 != 0) {
    Fail("{}: expected uint16 tokens, an even number of bytes, got {}", path, bytes.size());
  }
  tokens->reserve(tokens->size() + (bytes.size() - begin) / 2);
  for (size_t at = begin; at < bytes.size(); at += 2) {
    const auto token = static_cast<int32_t>(Byte(bytes, at) | Byte(bytes, at + 1) << 8);
    if (vocab > 0 && token >= vocab) {
      Fail("{}: expected token ids below {}, got {} at token {}", path, vocab, token, (at - begin) / 2);
    }
    tokens->push_back(token);
  }
}

}  // namespace strata
