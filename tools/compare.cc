#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/files.h"
#include "base/options.h"
#include "base/progress.h"
#include "model/memory.h"
#include "study/compare.h"
#include "study/compare_report.h"
#include "tools/commands.h"
#include "tools/common.h"
#include "tools/flags.h"

namespace strata {
namespace {

struct Request {
  ModelConfig model;
  TrainOptions training;
  CompareOptions compare;
  std::string config;
  bool json = false, quiet = false;
};

const std::set<std::string> kOutput = {"out", "evaluate", "checkpoint"};
const std::set<std::string> kData = {"text", "tokenizer", "validation-windows"};

void AddFlags(Request* request, Flags* flags) {
  flags->AddAll(&request->compare, "Comparison");
  flags->AddAll(&request->model, "Model", {"residual"});
  TrainOptions::Visit(request->training, [&](const char* name, auto& field, const char* help) {
    const std::string key = name;
    flags->Add(key, &field,
               key == "seed"  ? "first seed; a seed decides initialisation and data order"
               : key == "out" ? "folder of the comparison"
                              : help,
               kOutput.contains(key) ? "Output"
               : kData.contains(key) ? "Data"
                                     : "Training");
  });
  flags->Add("config", &request->config, "JSON file with options by name; the command line wins", "Data");
  flags->Switch("json", &request->json, "print one JSON object a line for each connection", "Output");
  flags->Switch("quiet", &request->quiet, "no progress on stderr", "Output");
}

// `residual` is one name in a model's options and a list in a comparison's; here it is the list.
void ReadConfig(const Flags& flags, Request* request) {
  if (request->config.empty()) return;
  nlohmann::json rest, own;
  try {
    rest = ParseJsonObject(request->config, ReadFile(request->config));
  } catch (const Error& error) {
    throw Error(error.what(), ExitCode::kUsage);
  }
  for (const std::string& name : OptionNames<CompareOptions>()) {
    if (!rest.contains(name)) continue;
    own[name] =
        rest[name].is_string() && name == "residual" ? nlohmann::json::array({rest[name]}) : rest[name];
    rest.erase(name);
  }
  if (!own.is_null()) ReadOptions(request->config, own, flags.given(), {}, &request->compare);
  ReadOptions(request->config, rest, flags.given(), {}, &request->model, &request->training);
}

// Everything that can be wrong is found before the text is read.
void Check(const Flags& flags, Request* request) {
  if (flags.given().contains("steps") && flags.given().contains("tokens")) {
    FailUsage("--tokens: expected one of --steps and --tokens, got both");
  }
  if (flags.given().contains("steps")) request->training.tokens = 0;
  for (const std::string& residual : request->compare.residual) {
    ModelConfig model = request->model;
    model.residual = residual;
    if (model.vocab == 0) model.vocab = 256;
    model.Resolve();
    TrainOptions training = request->training;
    training.Resolve(model);
    EstimateMemory(model, training.batch, Precision::kF32);
    const std::string caution = model.Caution();
    if (!caution.empty()) PrintMessage(fmt::format("strata: warning: {}\n", caution));
  }
  if (request->training.text.empty()) FailUsage("compare: expected --text PATH..., got none");
  UseThreads(request->training.threads);
}

std::string Quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_of(" \t\n\"'\\$`!*?[](){}<>|&;#~") == std::string::npos;
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string CommandLine(int argc, char** argv) {
  std::string line = "strata compare";
  for (int i = 1; i < argc; ++i) line += " " + Quoted(argv[i]);
  return line;
}

void Print(const Request& request, const Comparison& comparison) {
  if (request.json) {
    for (const ComparedArm& arm : comparison.arms) PrintJson(ToJson(arm));
    return;
  }
  fmt::print("{}\n\n{}\n", AnswerOf(comparison), AlignTable(TableOf(comparison)));
  for (const std::string& note : NotesOf(comparison)) fmt::print("{}\n", note);
  fmt::print("\nReport: {}/report.html\n", comparison.training.out);
}

}  // namespace

int RunCompare(int argc, char** argv) {
  Request request;
  request.model.vocab = 0;
  Flags flags("compare",
              "Trains several residual connections on the same text, body, budget and seeds, and compares "
              "their validation losses. Ctrl-C finishes the step and writes a checkpoint; the same command "
              "goes on from there.");
  AddFlags(&request, &flags);
  if (!flags.Parse(argc, argv)) return 0;
  ReadConfig(flags, &request);
  Check(flags, &request);
  const TrainOptions& training = request.training;
  const std::unique_ptr<Tokenizer> tokenizer = TokenizerFor(training.text, training.tokenizer);
  const Corpus corpus = LoadCorpus(training.text, *tokenizer, request.model.context);
  int64_t& vocab = request.model.vocab;
  if (vocab == 0) vocab = corpus.vocab;
  if (vocab < corpus.vocab) {
    FailUsage("--vocab: expected at least {} (the tokenizer's), got {}", corpus.vocab, vocab);
  }

  InstallStopHandlers();
  std::unique_ptr<Progress> progress;
  const auto on_progress = [&](int64_t done, int64_t total, const std::string& note) {
    if (progress == nullptr) {
      progress = std::make_unique<Progress>("compare", total,
                                            request.quiet ? Progress::Mode::kOff : Progress::Mode::kAuto);
      progress->Start(done);
    } else {
      progress->Update(done, note);
    }
  };
  const Comparison comparison =
      Compare(request.model, training, request.compare, corpus, *tokenizer, on_progress);
  progress.reset();
  if (comparison.interrupted) {
    PrintMessage(
        fmt::format("strata: stopped; the same command goes on from here:\n  {}\n", CommandLine(argc, argv)));
    return 1;
  }
  WriteFileAtomically(training.out + "/report.html", ReportOf(comparison, CommandLine(argc, argv)));
  Print(request, comparison);
  return 0;
}

}  // namespace strata
