#include <fmt/format.h>

#include <cmath>

#include "model/trainer.h"
#include "tools/commands.h"
#include "tools/common.h"
#include "tools/flags.h"

namespace strata {
namespace {

struct Request {
  std::string model, precision = "run";
  std::vector<std::string> text;
  int64_t batch = 8, threads = 0;
  bool json = false;
};

struct Text {
  std::vector<int32_t> tokens, bytes;  // bytes that each token stands for; empty for ready-made ids
};

Text Read(const std::vector<std::string>& paths, const Tokenizer& tokenizer, int64_t context) {
  Text text;
  if (AreShards(paths) != (tokenizer.name() == "ids")) {
    Fail("--text: expected {} for this model's tokenizer ({}), got {}",
         tokenizer.name() == "ids" ? ".bin shards" : "text", tokenizer.name(), paths[0]);
  }
  if (tokenizer.name() == "ids") {
    const Corpus corpus = LoadCorpus(paths, tokenizer, context);
    text.tokens = corpus.train;
    text.tokens.insert(text.tokens.end(), corpus.validation.begin(), corpus.validation.end());
    return text;
  }
  text.tokens = tokenizer.Encode(ReadTexts(paths));
  text.bytes.reserve(text.tokens.size());
  for (const int32_t id : text.tokens) text.bytes.push_back(static_cast<int32_t>(tokenizer.Piece(id).size()));
  if (text.tokens.size() < 2) Fail("{}: expected at least 2 tokens, got {}", paths[0], text.tokens.size());
  return text;
}

}  // namespace

int RunEval(int argc, char** argv) {
  Request request;
  Flags flags("eval",
              "Scores all of a text: every token after the first is predicted once, in windows of the "
              "model's context that lie side by side.");
  flags.Add("model", &request.model, "folder of a run", "Model");
  flags.Add("precision", &request.precision, "matrix products: f32, bf16, auto, or run: as trained", "Model");
  flags.Add("text", &request.text, "text files, folders or .bin token shards", "Data");
  flags.Add("batch", &request.batch, "windows at a time", "Data");
  flags.Add("threads", &request.threads, "threads (0: all cores)", "Data");
  flags.Switch("json", &request.json, "print the result as JSON", "Output");
  if (!flags.Parse(argc, argv)) return 0;
  flags.Require("model");
  flags.Require("text");
  if (request.batch < 1 || request.batch > 1 << 16)
    FailUsage("--batch: expected 1 to 65536, got {}", request.batch);
  UseThreads(request.threads);
  const LoadedModel loaded = OpenModel(request.model, request.precision);
  const Text text = Read(request.text, *loaded.tokenizer, loaded.config.context);
  const EvalResult result = EvaluateAll(loaded.decoder.get(), text.tokens, text.bytes, request.batch);
  if (!std::isfinite(result.nats_per_token)) {
    Fail("{}: expected a model with finite losses, got {} nats per token", request.model,
         result.nats_per_token);
  }
  if (request.json) {
    nlohmann::ordered_json json = {{"nats_per_token", result.nats_per_token}};
    if (result.bytes > 0) json["nats_per_byte"] = result.nats_per_byte;
    json["perplexity"] = result.perplexity;
    json["tokens"] = result.tokens;
    json["bytes"] = result.bytes;
    PrintJson(json);
    return 0;
  }
  fmt::print("nats per token  {:.6f}\n", result.nats_per_token);
  if (result.bytes > 0) fmt::print("nats per byte   {:.6f}\n", result.nats_per_byte);
  fmt::print("perplexity      {:.4f}\ntokens          {}\nbytes           {}\n", result.perplexity,
             result.tokens, result.bytes);
  return 0;
}

}  // namespace strata
