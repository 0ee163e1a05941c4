#include "study/compare_store.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/options.h"
#include "base/random.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Options without which the trained models and their losses stay the same.
constexpr const char* kFree[] = {"residual", "seeds",      "prompt", "text",  "tokenizer",
                                 "threads",  "checkpoint", "out",    "tokens"};

json Describe(const Comparison& comparison, const Corpus& corpus) {
  json stored;
  WriteOptions(comparison.model, &stored);
  WriteOptions(comparison.training, &stored);
  WriteOptions(comparison.options, &stored);  // last: `residual` is the list of arms
  stored.erase("out");
  stored.erase("tokens");
  stored["format"] = 1;
  stored["tokenizer-fingerprint"] = corpus.fingerprint;
  const auto hash = [](const std::vector<int32_t>& tokens) {
    return HashName({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t)});
  };
  stored["corpus"] = fmt::format("{:016x}{:016x}", hash(corpus.train), hash(corpus.validation));
  return stored;
}

void ExpectSame(const std::string& path, const json& stored, const json& wanted) {
  for (const auto& item : wanted.items()) {
    const std::string& name = item.key();
    if (std::find(std::begin(kFree), std::end(kFree), name) != std::end(kFree)) continue;
    const json before = stored.value(name, json());
    if (before == item.value()) continue;
    if (name == "corpus") {
      FailUsage("--text: expected the text that the comparison in {} began with, got another", path);
    }
    FailUsage("--out: expected {} {} as in {}, got {}; give the same options or another folder", name,
              before.dump(), path, item.value().dump());
  }
}

}  // namespace

void OpenComparison(const Comparison& comparison, const Corpus& corpus) {
  const std::string& out = comparison.training.out;
  if (fs::exists(out + "/config.json")) {
    FailUsage("--out: expected a folder for comparisons, got that of a single run: {}", out);
  }
  std::error_code error;
  fs::create_directories(out, error);
  if (error) Fail("{}: expected a folder that can be made, got: {}", out, error.message());
  const std::string path = out + "/compare.json";
  const json wanted = Describe(comparison, corpus);
  if (fs::exists(path)) ExpectSame(path, ParseJsonObject(path, ReadFile(path)), wanted);
  WriteFileAtomically(path, wanted.dump(2) + "\n");
}

std::optional<RunResult> ReadResult(const std::string& folder) {
  const std::string path = folder + "/result.json";
  if (!fs::exists(path)) return std::nullopt;
  try {
    const json stored = json::parse(ReadFile(path));
    return RunResult{
        stored.at("step").get<int64_t>(),         stored.at("tokens").get<int64_t>(),
        stored.at("parameters").get<int64_t>(),   stored.at("loss").get<double>(),
        stored.at("nats_per_byte").get<double>(), stored.at("median_step_seconds").get<double>()};
  } catch (const json::exception& error) {
    Fail("{}: expected the result of a run, got: {}; remove the file and the run is evaluated again", path,
         error.what());
  }
}

void WriteResult(const std::string& folder, const RunResult& result) {
  const nlohmann::ordered_json stored = {{"step", result.step},
                                         {"tokens", result.tokens},
                                         {"parameters", result.parameters},
                                         {"loss", result.loss},
                                         {"nats_per_byte", result.nats_per_byte},
                                         {"median_step_seconds", result.median_step_seconds}};
  WriteFileAtomically(folder + "/result.json", stored.dump() + "\n");
}

}  // namespace strata
