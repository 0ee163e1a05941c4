#include <fmt/format.h>

#include <cstdio>

#include "base/files.h"
#include "base/progress.h"
#include "model/checkpoint.h"
#include "model/memory.h"
#include "model/trainer.h"
#include "tools/commands.h"
#include "tools/common.h"
#include "tools/flags.h"

namespace strata {
namespace {

struct Request {
  ModelConfig model;
  TrainOptions training;
  std::string config;
  bool resume = false, json = false, quiet = false;
};

const std::set<std::string> kOutput = {"out", "evaluate", "checkpoint"};
const std::set<std::string> kData = {"text", "tokenizer", "validation-windows"};

void AddFlags(Request* request, Flags* flags) {
  flags->AddAll(&request->model, "Model");
  TrainOptions::Visit(request->training, [&](const char* name, auto& field, const char* help) {
    flags->Add(name, &field, help,
               kOutput.contains(name) ? "Output"
               : kData.contains(name) ? "Data"
                                      : "Training");
  });
  flags->Add("config", &request->config, "JSON file with options by name; the command line wins", "Data");
  flags->Switch("resume", &request->resume, "go on with the run in --out, with its options", "Output");
  flags->Switch("json", &request->json, "print the result as JSON", "Output");
  flags->Switch("quiet", &request->quiet, "no progress on stderr", "Output");
}

std::string ReadConfigText(const std::string& path) {
  try {
    return ReadFile(path);
  } catch (const Error& error) {
    throw Error(error.what(), ExitCode::kUsage);
  }
}

// Options come from the resumed run, then --config, then the command line; later ones win.
void ReadFiles(const Flags& flags, Request* request) {
  const std::set<std::string> extras = {RunConfigExtras().begin(), RunConfigExtras().end()};
  TrainOptions& training = request->training;
  if (!request->config.empty()) {
    ReadConfigFile(request->config, ReadConfigText(request->config), flags, extras, &request->model,
                   &training);
  }
  if (!request->resume) return;
  const Request given = *request;
  const RunConfig stored = ReadRunConfig(training.out);
  std::string text = ReadFile(training.out + "/config.json");
  ReadConfigFile(training.out + "/config.json", text, flags, extras, &request->model, &training);
  if (!request->config.empty()) {
    ReadConfigFile(request->config, ReadConfigText(request->config), flags, extras, &request->model,
                   &training);
  }
  training.out = given.training.out;
  if (stored.tokenizer_name == "bpe" && !flags.given().contains("tokenizer")) {
    training.tokenizer = training.out + "/tokenizer.model";
  }
}

// Sizes are checked before a file is opened, and the memory before the text is read.
void CheckOptions(const Flags& flags, Request* request) {
  if (flags.given().contains("steps") && flags.given().contains("tokens")) {
    FailUsage("--tokens: expected one of --steps and --tokens, got both");
  }
  // A new number of steps replaces what --tokens said earlier, and the other way round.
  if (flags.given().contains("steps")) request->training.tokens = 0;
  ModelConfig model = request->model;
  if (model.vocab == 0) model.vocab = 256;
  model.Resolve();
  request->training.Resolve(model);
  EstimateMemory(model, request->training.batch, Precision::kF32);
  if (!request->resume) ExpectUnused(request->training.out);
  if (request->training.text.empty()) FailUsage("train: expected --text PATH..., got none");
}

void SetVocab(const Tokenizer& tokenizer, int64_t needed, Request* request) {
  int64_t& vocab = request->model.vocab;
  if (vocab == 0) vocab = needed;
  const bool ids = tokenizer.name() == "ids";
  if (ids ? vocab < needed : vocab != needed) {
    FailUsage("--vocab: expected {}{} (the tokenizer's), got {}", ids ? "at least " : "", needed, vocab);
  }
}

void AnnounceMemory(const Request& request) {
  const Precision precision = ParsePrecision(request.training.precision);
  ModelConfig model = request.model;
  model.Resolve();
  const MemoryEstimate estimate = EstimateMemory(model, request.training.batch, precision);
  if (!request.quiet) PrintMessage(ToString(estimate) + "\n");
  CheckMemory(estimate, FreeBytes());
  const std::string caution = model.Caution();
  if (!caution.empty()) PrintMessage(fmt::format("strata: warning: {}\n", caution));
}

void Print(const Request& request, const TrainResult& result) {
  const std::string& out = request.training.out;
  if (request.json) {
    nlohmann::ordered_json json = {{"out", out},
                                   {"residual", request.model.residual},
                                   {"step", result.step},
                                   {"tokens", result.tokens},
                                   {"parameters", result.parameters},
                                   {"interrupted", result.interrupted}};
    if (!result.interrupted) json["validation_loss"] = result.validation_loss;
    if (!result.interrupted) json["validation_nats_per_byte"] = result.validation_nats_per_byte;
    json["median_step_seconds"] = result.median_step_seconds;
    json["peak_bytes"] = result.peak_bytes;
    PrintJson(json);
  } else if (result.interrupted) {
    fmt::print("stopped after step {}; go on with --resume\n", result.step);
  } else {
    fmt::print("{}: {} steps, {} tokens, validation loss {:.4f} nats per token", out, result.step,
               result.tokens, result.validation_loss);
    if (result.validation_nats_per_byte > 0) fmt::print(", {:.4f} per byte", result.validation_nats_per_byte);
    fmt::print("\n");
  }
}

}  // namespace

int RunTrain(int argc, char** argv) {
  Request request;
  request.model.vocab = 0;
  Flags flags("train",
              "Trains one model on text, or goes on with a run. Ctrl-C finishes the step and writes a "
              "checkpoint.");
  AddFlags(&request, &flags);
  if (!flags.Parse(argc, argv)) return 0;
  ReadFiles(flags, &request);
  CheckOptions(flags, &request);
  TrainOptions& training = request.training;
  const std::unique_ptr<Tokenizer> tokenizer = TokenizerFor(training.text, training.tokenizer);
  Corpus corpus;
  const bool ids = tokenizer->name() == "ids";
  if (ids) corpus = LoadCorpus(training.text, *tokenizer, request.model.context);
  SetVocab(*tokenizer, ids ? corpus.vocab : tokenizer->vocab(), &request);
  AnnounceMemory(request);
  if (!ids) corpus = LoadCorpus(training.text, *tokenizer, request.model.context);

  InstallStopHandlers();
  std::set<std::string> warned;
  Progress progress("train", training.steps, request.quiet ? Progress::Mode::kOff : Progress::Mode::kAuto);
  const TrainResult result =
      Train(request.model, training, corpus, *tokenizer, request.resume, [&](const StepRecord& record) {
        if (record.resumed) progress.Start(record.step - 1);
        std::string note = fmt::format("loss {:.4f}  {:.0f} tokens/s", record.loss, record.tokens_per_second);
        if (record.validation_loss >= 0) note += fmt::format("  validation {:.4f}", record.validation_loss);
        progress.Update(record.step, note);
        for (const auto& [name, warning] : record.health.warnings) {
          if (warned.insert(name).second) {
            PrintMessage(fmt::format("strata: step {}: warning: {}\n", record.step, warning));
          }
        }
      });
  progress.Finish();
  Print(request, result);
  return 0;
}

}  // namespace strata
