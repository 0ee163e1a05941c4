#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>

#include "base/parallel.h"
#include "base/progress.h"
#include "model/memory.h"
#include "study/step_time.h"
#include "tools/commands.h"
#include "tools/common.h"
#include "tools/flags.h"

namespace strata {
namespace {

struct Request {
  ModelConfig config;
  std::vector<std::string> residuals;
  int64_t batch = 8, rounds = 7, threads = 0;
  std::string precision = "auto", python = "/usr/bin/python3", script = "bench/peers/torch_train.py";
  bool json = false, quiet = false;
};

// The shape that figures are quoted for.
ModelConfig ReferenceShape() {
  ModelConfig c;
  c.blocks = 8, c.dim = 256, c.heads = 4, c.mlp = 1024, c.activation = "gelu", c.vocab = 4096,
  c.context = 256;
  return c;
}

void AddShape(Flags* flags, Request* request) {
  flags->AddAll(&request->config, "Model", {"residual"});
  flags->Add("batch", &request->batch, "sequences per step", "Measurement");
  flags->Add("rounds", &request->rounds, "counted rounds; figures are medians", "Measurement");
  flags->Add("threads", &request->threads, "threads (0: all cores)", "Measurement");
  flags->Switch("json", &request->json, "print rows as JSON lines", "Output");
  flags->Switch("quiet", &request->quiet, "no progress", "Output");
}

void Check(Request* request) {
  if (request->rounds < 1 || request->rounds > 10000) {
    FailUsage("--rounds: expected 1 to 10000, got {}", request->rounds);
  }
  if (request->batch < 1 || request->batch > 1 << 20) {
    FailUsage("--batch: expected 1 to {}, got {}", 1 << 20, request->batch);
  }
  request->config.Resolve();
  UseThreads(request->threads);
}

// All models of one measurement are in memory at the same time.
void CheckTogether(const Request& request, Precision precision) {
  MemoryEstimate sum;
  std::vector<std::string> all = request.residuals;
  all.push_back("standard");
  for (const std::string& residual : all) {
    ModelConfig config = request.config;
    config.residual = residual;
    config.Resolve();
    const MemoryEstimate one = EstimateMemory(config, request.batch, precision);
    sum.parameters += one.parameters, sum.gradients += one.gradients;
    sum.moments += one.moments, sum.activations += one.activations;
  }
  CheckMemory(sum, FreeBytes());
}

std::vector<StepTime> Measure(const Request& request, Precision precision, const std::string& label) {
  CheckTogether(request, precision);
  Progress progress(label, request.rounds, request.quiet ? Progress::Mode::kOff : Progress::Mode::kAuto);
  return TimeSteps(request.config, request.residuals, request.batch, precision,
                   static_cast<int>(request.rounds), [&](int done) { progress.Update(done, ""); });
}

int BenchStep(int argc, char** argv) {
  Request request;
  request.config = ReferenceShape();
  Flags flags(
      "bench step",
      "Times training steps of residual connections on one body, in turn A B C A B C, so that the ratios "
      "hold on a noisy machine. The defaults are the reference shape.");
  flags.Add("residual", &request.residuals, "residual connections, NAME[:option=value,...]", "Model");
  flags.Add("precision", &request.precision, "matrix products: f32, bf16 or auto", "Measurement");
  AddShape(&flags, &request);
  if (!flags.Parse(argc, argv)) return 0;
  if (request.residuals.empty()) request.residuals = {"standard", "attnres", "mhc"};
  const Precision precision = ResolvePrecision(ParsePrecision(request.precision));
  Check(&request);
  const std::vector<StepTime> times = Measure(request, precision, "bench step");
  if (!request.json) {
    fmt::print("{:<24}{:>12}{:>12}{:>12}{:>12}\n", "residual", "ms / step", "tokens/s", "x standard",
               "memory");
  }
  for (const StepTime& time : times) {
    if (request.json) {
      PrintJson({{"residual", time.residual},
                 {"precision", ToString(precision)},
                 {"threads", Threads()},
                 {"seconds", time.seconds},
                 {"tokens_per_second", time.tokens_per_second},
                 {"relative_to_standard", time.relative_to_standard},
                 {"peak_bytes", time.peak_bytes}});
    } else {
      fmt::print("{:<24}{:>12.1f}{:>12.0f}{:>12.3f}{:>12}\n", time.residual, time.seconds * 1e3,
                 time.tokens_per_second, time.relative_to_standard,
                 FormatBytes(static_cast<double>(time.peak_bytes)));
    }
  }
  return 0;
}

// What a command prints on stdout; Error if it fails.
std::string Capture(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) Fail("bench peers: expected to start {}, got an error", command);
  std::string text;
  std::array<char, 4096> part;
  while (fgets(part.data(), static_cast<int>(part.size()), pipe.get()) != nullptr) text += part.data();
  return text;
}

// Tokens per second of PyTorch per precision, from our own script; empty if there is no PyTorch.
std::vector<nlohmann::json> TorchRows(const Request& request) {
  if (access(request.script.c_str(), R_OK) != 0) {
    Fail("--script: expected the file bench/peers/torch_train.py of the source tree, got {}", request.script);
  }
  // The processor names that some systems set for OpenBLAS slow PyTorch down: it is measured without them.
  const std::string command =
      fmt::format("env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE '{}' '{}' --steps {} --threads {}",
                  request.python, request.script, request.rounds, Threads());
  std::vector<nlohmann::json> rows;
  const std::string text = Capture(command);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const auto row = nlohmann::json::parse(text.substr(begin, end - begin), nullptr, false);
    if (row.is_object() && row.contains("tokens_per_second")) rows.push_back(row);
    begin = end + 1;
  }
  if (rows.empty())
    Fail("bench peers: expected PyTorch for {} (apt-get install python3-torch), got none", request.python);
  return rows;
}

int BenchPeers(int argc, char** argv) {
  Request request;
  Flags flags(
      "bench peers",
      "Times the same training step (the reference shape, standard) here and in PyTorch on this CPU, one "
      "after the other in one run, and prints the ratios.");
  flags.Add("python", &request.python, "interpreter that has PyTorch", "Measurement");
  flags.Add("script", &request.script, "the PyTorch program", "Measurement");
  flags.Add("rounds", &request.rounds, "counted steps of each; figures are medians", "Measurement");
  flags.Add("threads", &request.threads, "threads (0: all cores)", "Measurement");
  flags.Switch("json", &request.json, "print rows as JSON lines", "Output");
  flags.Switch("quiet", &request.quiet, "no progress", "Output");
  if (!flags.Parse(argc, argv)) return 0;
  request.config = ReferenceShape();
  request.residuals = {"standard"};
  Check(&request);
  const std::vector<nlohmann::json> torch = TorchRows(request);
  if (!request.json) {
    fmt::print("{:<10}{:>20}{:>20}{:>10}\n", "precision", "strata tokens/s", "PyTorch tokens/s", "ratio");
  }
  for (const nlohmann::json& row : torch) {
    const std::string name = row.at("precision");
    const StepTime ours = Measure(request, ParsePrecision(name), "bench peers " + name)[0];
    const double theirs = row.at("tokens_per_second");
    if (request.json) {
      PrintJson({{"precision", name},
                 {"tokens_per_second", ours.tokens_per_second},
                 {"torch_tokens_per_second", theirs},
                 {"ratio", ours.tokens_per_second / theirs},
                 {"torch", row.value("torch", "")},
                 {"threads", Threads()},
                 {"peak_bytes", ours.peak_bytes}});
    } else {
      fmt::print("{:<10}{:>20.0f}{:>20.0f}{:>10.2f}\n", name, ours.tokens_per_second, theirs,
                 ours.tokens_per_second / theirs);
    }
  }
  return 0;
}

}  // namespace

int RunBench(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "step") return BenchStep(argc - 1, argv + 1);
  if (what == "peers") return BenchPeers(argc - 1, argv + 1);
  if (what == "--help" || what == "-h") {
    fmt::print(
        "strata bench WHAT [OPTIONS]\n\n"
        "  step   training steps of residual connections, side by side\n"
        "  peers  the same training step in PyTorch, where it is installed\n\n"
        "`strata bench WHAT --help` lists the options.\n");
    return 0;
  }
  FailUsage("bench: expected step or peers, got {}", what.empty() ? "nothing" : what);
}

}  // namespace strata
