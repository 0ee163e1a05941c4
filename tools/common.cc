#include "tools/common.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/parallel.h"
#include "model/checkpoint.h"

namespace strata {

bool AreShards(const std::vector<std::string>& paths) {
  const auto shards = std::count_if(paths.begin(), paths.end(), [](const std::string& path) {
    return std::filesystem::path(path).extension() == ".bin";
  });
  if (shards != 0 && shards != static_cast<std::ptrdiff_t>(paths.size())) {
    FailUsage("--text: expected either text or .bin shards, got both");
  }
  return shards != 0;
}

std::unique_ptr<Tokenizer> TokenizerFor(const std::vector<std::string>& paths, const std::string& spec) {
  return LoadTokenizer(AreShards(paths) ? "ids" : spec);
}

void UseThreads(int64_t threads) {
  if (threads < 0 || threads > 4096) FailUsage("--threads: expected 0 to 4096, got {}", threads);
  if (threads > 0) SetThreads(static_cast<int>(threads));
}

LoadedModel OpenModel(const std::string& folder, const std::string& precision) {
  if (precision != "run") return LoadModel(folder, ParsePrecision(precision));
  const bool f32 = ReadRunConfig(folder).training.precision == "f32";
  return LoadModel(folder, f32 ? Precision::kF32 : Precision::kAuto);
}

void PrintJson(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace strata
