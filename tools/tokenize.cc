#include <fmt/format.h>

#include "model/data.h"
#include "tools/commands.h"
#include "tools/common.h"
#include "tools/flags.h"

namespace strata {

int RunTokenize(int argc, char** argv) {
  int64_t vocab = 4096;
  std::vector<std::string> text;
  std::string out = "tokenizer.model";
  bool json = false;
  Flags flags("tokenize",
              "Trains a BPE tokenizer with byte fallback and writes it as a SentencePiece model; use "
              "it with `strata train --tokenizer FILE`.");
  flags.Add("vocab", &vocab, "number of tokens", "Tokenizer");
  flags.Add("text", &text, "text files or folders", "Data");
  flags.Add("out", &out, "file to write", "Output");
  flags.Switch("json", &json, "print the result as JSON", "Output");
  if (!flags.Parse(argc, argv)) return 0;
  flags.Require("text");
  // 256 bytes and the reserved ids must fit.
  if (vocab < 260 || vocab > 1 << 20) FailUsage("--vocab: expected 260 to {}, got {}", 1 << 20, vocab);
  if (AreShards(text)) FailUsage("--text: expected text, got token shards");
  const std::string all = ReadTexts(text);
  const std::unique_ptr<Tokenizer> tokenizer = TrainBpe(all, vocab);
  tokenizer->Save(out);
  const size_t tokens = tokenizer->Encode(all).size();
  const double ratio = static_cast<double>(all.size()) / static_cast<double>(std::max<size_t>(1, tokens));
  if (json) {
    PrintJson({{"out", out},
               {"vocab", tokenizer->vocab()},
               {"bytes", all.size()},
               {"tokens", tokens},
               {"bytes_per_token", ratio},
               {"fingerprint", tokenizer->fingerprint()}});
  } else {
    fmt::print("{}: {} tokens, {:.2f} bytes per token on this text\n", out, tokenizer->vocab(), ratio);
  }
  return 0;
}

}  // namespace strata
