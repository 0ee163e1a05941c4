#include "model/data.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/files.h"
#include "model/shards.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVocabStep = 64;  // an open vocabulary is rounded up to a multiple of this
constexpr size_t kWordSearch = 64;  // how far back the split looks for a blank or a line's end
constexpr int64_t kHeldOut = 10;    // one part in ten is for validation

bool Hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// All regular files under a folder that are not hidden nor in a hidden folder, sorted by path.
std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  try {
    for (auto it = fs::recursive_directory_iterator(folder); it != fs::recursive_directory_iterator(); ++it) {
      if (Hidden(it->path())) {
        it.disable_recursion_pending();
      } else if (it->is_regular_file()) {
        files.push_back(it->path().string());
      }
    }
  } catch (const fs::filesystem_error& error) {
    Fail("{}: expected a folder that can be read, got: {}", error.path1().string(), error.code().message());
  }
  if (files.empty()) Fail("{}: expected a folder with files, got none (hidden ones do not count)", folder);
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> Files(const std::vector<std::string>& paths) {
  if (paths.empty()) Fail("text: expected at least one file or folder, got none");
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) Fail("{}: expected a file or folder, got: {}", path, error.message());
    if (!fs::is_directory(status)) {
      files.push_back(path);
    } else {
      for (std::string& file : FilesIn(path)) files.push_back(std::move(file));
    }
  }
  return files;
}

// Whether the files are token shards. Error if only some are.
bool AreShards(const std::vector<std::string>& files) {
  const auto shard = [](const std::string& file) { return fs::path(file).extension() == ".bin"; };
  const auto first_shard = std::find_if(files.begin(), files.end(), shard);
  const auto first_text = std::find_if_not(files.begin(), files.end(), shard);
  if (first_shard != files.end() && first_text != files.end()) {
    Fail("text: expected either text or .bin shards, got both ({} and {})", *first_text, *first_shard);
  }
  return first_shard != files.end();
}

std::string JoinTexts(const std::vector<std::string>& paths, const std::vector<std::string>& files,
                      const Tokenizer* tokenizer) {
  std::string all;
  for (const std::string& file : files) {
    const std::string text = ReadFile(file);
    const int64_t bad = tokenizer != nullptr && tokenizer->name() == "bpe" ? FindInvalidUtf8(text) : -1;
    if (bad >= 0) {
      Fail("{}: expected valid UTF-8, got the byte 0x{:02x} at offset {}; --tokenizer bytes takes any file",
           file, static_cast<unsigned char>(text[static_cast<size_t>(bad)]), bad);
    }
    if (!all.empty() && all.back() != '\n' && !text.empty()) all += '\n';
    all += text;
  }
  if (all.empty()) Fail("{}: expected text, got no bytes", fmt::join(paths, ", "));
  return all;
}

[[noreturn]] void FailTooShort(int64_t context, size_t got) {
  Fail("text: expected at least {} tokens (for context {}), got {}", 2 * (context + 1), context, got);
}

// Byte at which the last tenth of a text begins, moved back to the start of a word or else of a character.
// It depends on the text alone, so scores per byte compare across tokenizers.
size_t SplitByte(std::string_view text) {
  const size_t cut = text.size() - text.size() / kHeldOut;
  const size_t lowest = cut > kWordSearch ? cut - kWordSearch : 0;
  for (size_t at = cut; at > lowest; --at) {
    if (at < text.size() && (text[at] == ' ' || text[at - 1] == '\n')) return at;
  }
  size_t at = cut;
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

// The last tenth, or one window if that is more, from `tokens` to `validation`.
void SplitTokens(std::vector<int32_t> tokens, int64_t context, Corpus* corpus) {
  const int64_t window = context + 1, size = static_cast<int64_t>(tokens.size());
  if (size < 2 * window) FailTooShort(context, tokens.size());
  const auto cut = tokens.begin() + (size - std::max(size / kHeldOut, window));
  corpus->validation.assign(cut, tokens.end());
  tokens.erase(cut, tokens.end());
  corpus->train = std::move(tokens);
}

void SplitText(const std::string& text, const Tokenizer& tokenizer, int64_t context, Corpus* corpus) {
  const std::string_view all = text;
  const size_t cut = SplitByte(all), window = static_cast<size_t>(context) + 1;
  corpus->train = tokenizer.Encode(all.substr(0, cut));
  corpus->validation = tokenizer.Encode(all.substr(cut));
  // A short text is split between whole tokens instead, so that each part gets its window.
  if (std::min(corpus->train.size(), corpus->validation.size()) < window) {
    SplitTokens(tokenizer.Encode(all), context, corpus);
  }
}

}  // namespace

std::string ReadTexts(const std::vector<std::string>& paths) {
  const std::vector<std::string> files = Files(paths);
  if (AreShards(files)) Fail("{}: expected text, got token shards", files[0]);
  return JoinTexts(paths, files, nullptr);
}

Corpus LoadCorpus(const std::vector<std::string>& paths, const Tokenizer& tokenizer, int64_t context) {
  if (context < 1 || context > INT32_MAX) FailUsage("context: expected at least 1, got {}", context);
  const std::vector<std::string> files = Files(paths);
  const bool shards = AreShards(files);
  if (!shards && tokenizer.name() == "ids")
    Fail("{}: expected a .bin shard of token ids, got text", files[0]);
  Corpus corpus;
  corpus.tokenizer_name = tokenizer.name();
  corpus.fingerprint = tokenizer.fingerprint();
  corpus.vocab = tokenizer.vocab();
  if (shards) {
    std::vector<int32_t> tokens;
    for (const std::string& file : files) ReadShard(file, tokenizer.vocab(), &tokens);
    if (corpus.vocab == 0 && !tokens.empty()) {
      corpus.vocab = (*std::max_element(tokens.begin(), tokens.end()) / kVocabStep + 1) * kVocabStep;
    }
    SplitTokens(std::move(tokens), context, &corpus);
  } else {
    SplitText(JoinTexts(paths, files, &tokenizer), tokenizer, context, &corpus);
  }
  corpus.validation_bytes.reserve(corpus.validation.size());
  const bool text = tokenizer.name() != "ids";
  for (const int32_t id : corpus.validation) {
    corpus.validation_bytes.push_back(text ? static_cast<int32_t>(tokenizer.Piece(id).size()) : 0);
  }
  return corpus;
}

}  // namespace strata
