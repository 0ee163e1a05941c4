#include "study/sample.h"

#include <filesystem>

#include "base/files.h"
#include "infer/generator.h"
#include "model/trainer.h"

namespace strata {
namespace {

constexpr size_t kCharacters = 400;
constexpr size_t kPromptBytes = 40;

// Bytes that start a character of UTF-8.
size_t Characters(const std::string& text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace

std::string DefaultPrompt(const Corpus& corpus, const Tokenizer& tokenizer) {
  if (tokenizer.name() == "ids") return "";
  std::string text;
  for (size_t i = 0; i < corpus.validation.size() && text.size() < 2 * kPromptBytes; ++i) {
    text += tokenizer.Piece(corpus.validation[i]);
  }
  // The split may cut a word; lines are not crossed where the first one is long enough.
  const size_t first = text.find_first_of(" \n");
  if (first != std::string::npos && first < kPromptBytes / 2)
    text.erase(0, text.find_first_not_of(" \n", first));
  if (text.size() > kPromptBytes) {
    const size_t last = text.find_last_of(" \n", kPromptBytes);
    if (last != std::string::npos && last > 0) text.resize(last);
  }
  return text.empty() ? "\n" : text;
}

std::string SampleOf(const std::string& folder, const std::string& prompt, Precision precision) {
  const std::string path = folder + "/sample.txt";
  if (std::filesystem::exists(path)) {
    const std::string stored = ReadFile(path);
    if (stored.starts_with(prompt) && stored.size() > prompt.size()) return stored.substr(prompt.size());
  }
  const LoadedModel loaded = LoadModel(folder, precision);
  SamplerOptions options;
  options.temperature = 0.8;
  options.top_k = 40;
  Generator generator(loaded.decoder.get(), loaded.tokenizer->vocab(), options);
  std::string text;
  generator.Generate(loaded.tokenizer->Encode(prompt), kCharacters, [&](int32_t token) {
    text += loaded.tokenizer->Piece(token);
    return Characters(text) < kCharacters;
  });
  WriteFileAtomically(path, prompt + text);
  return text;
}

}  // namespace strata
