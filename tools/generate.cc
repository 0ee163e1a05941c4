#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>

#include "infer/generator.h"
#include "tools/commands.h"
#include "tools/common.h"
#include "tools/flags.h"

namespace strata {
namespace {

struct Request {
  std::string model, precision = "run", prompt;
  int64_t tokens = 200, threads = 0;
  SamplerOptions sampler;
  bool stream = false, json = false;
};

// --prompt, else what stdin holds; a line break where there is neither.
std::string PromptOf(const Request& request, const Flags& flags) {
  std::string prompt = request.prompt;
  if (!flags.given().contains("prompt") && isatty(STDIN_FILENO) == 0) {
    prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  }
  return prompt.empty() ? "\n" : prompt;
}

void Write(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    Fail("standard output: expected to write it, got an error");
  }
}

}  // namespace

int RunGenerate(int argc, char** argv) {
  Request request;
  Flags flags(
      "generate",
      "Writes text that goes on from a prompt (--prompt, else standard input; a line break if empty). When "
      "the context is full, the last half of it is read again and the text goes on from there.");
  flags.Add("model", &request.model, "folder of a run", "Model");
  flags.Add("precision", &request.precision, "matrix products: f32, bf16, auto, or run: as trained", "Model");
  flags.Add("threads", &request.threads, "threads (0: all cores)", "Model");
  flags.Add("prompt", &request.prompt, "text to go on from", "Text");
  flags.Add("tokens", &request.tokens, "tokens to write", "Text");
  flags.AddAll(&request.sampler, "Text");
  flags.Switch("stream", &request.stream, "print each token as it is drawn", "Output");
  flags.Switch("json", &request.json, "print prompt, text and tokens as JSON", "Output");
  if (!flags.Parse(argc, argv)) return 0;
  flags.Require("model");
  request.sampler.Check();
  if (request.tokens < 1 || request.tokens > 1 << 30) {
    FailUsage("--tokens: expected 1 to {}, got {}", 1 << 30, request.tokens);
  }
  if (request.stream && request.json) FailUsage("--stream: expected one of --stream and --json, got both");
  UseThreads(request.threads);
  const LoadedModel loaded = OpenModel(request.model, request.precision);
  const Tokenizer& tokenizer = *loaded.tokenizer;
  if (tokenizer.name() == "ids") Fail("{}: expected a model trained on text, got one of ids", request.model);

  const std::string prompt = PromptOf(request, flags);
  const std::vector<int32_t> start = tokenizer.Encode(prompt);
  Generator generator(loaded.decoder.get(), tokenizer.vocab(), request.sampler);
  if (request.stream) Write(prompt);
  const std::vector<int32_t> drawn = generator.Generate(start, request.tokens, [&](int32_t token) {
    if (request.stream) Write(tokenizer.Piece(token));
    return true;
  });
  std::string text;
  for (const int32_t token : drawn) text += tokenizer.Piece(token);
  if (request.json) {
    PrintJson({{"prompt", prompt}, {"text", text}, {"tokens", drawn.size()}});
  } else {
    Write(request.stream ? "\n" : prompt + text + "\n");
  }
  return 0;
}

}  // namespace strata
