#include <filesystem>

#include "base/files.h"
#include "base/options.h"
#include "model/checkpoint.h"
#include "model/memory.h"

namespace strata {

const std::vector<std::string>& RunConfigExtras() {
  static const std::vector<std::string> extras = {"format", "tokenizer-name", "tokenizer-fingerprint"};
  return extras;
}

std::string ToJson(const RunConfig& run) {
  nlohmann::json json;
  WriteOptions(run.model, &json);
  WriteOptions(run.training, &json);
  json["format"] = 1;
  json["tokenizer-name"] = run.tokenizer_name;
  json["tokenizer-fingerprint"] = run.tokenizer_fingerprint;
  return json.dump(2) + "\n";
}

RunConfig ReadRunConfig(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!std::filesystem::exists(path))
    Fail("{}: expected the folder of a run with a config.json, got none", folder);
  try {
    const nlohmann::json json = ParseJsonObject(path, ReadFile(path));
    int64_t format = 0;
    if (json.contains("format")) FromJson(path, "format", json["format"], &format);
    if (format != 1) Fail("{}: expected format version 1, got {}", path, format);
    RunConfig run;
    ReadOptions(path, json, {}, {RunConfigExtras().begin(), RunConfigExtras().end()}, &run.model,
                &run.training);
    for (const char* key : {"tokenizer-name", "tokenizer-fingerprint"}) {
      if (!json.contains(key)) Fail("{}: expected a key \"{}\", got none", path, key);
    }
    FromJson(path, "tokenizer-name", json["tokenizer-name"], &run.tokenizer_name);
    FromJson(path, "tokenizer-fingerprint", json["tokenizer-fingerprint"], &run.tokenizer_fingerprint);
    run.model.Resolve();
    return run;
  } catch (const Error& error) {
    throw Error(error.what());  // whatever is wrong in a stored file is a failure, not a usage error
  }
}

static std::unique_ptr<Tokenizer> StoredTokenizer(const std::string& folder, const RunConfig& run) {
  const std::string spec = run.tokenizer_name == "bpe" ? folder + "/tokenizer.model" : run.tokenizer_name;
  std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(spec);
  if (tokenizer->fingerprint() != run.tokenizer_fingerprint) {
    Fail("{}: expected a tokenizer of fingerprint {}, got {}", spec, run.tokenizer_fingerprint,
         tokenizer->fingerprint());
  }
  return tokenizer;
}

LoadedModel LoadModel(const std::string& folder, Precision precision) {
  LoadedModel loaded;
  const RunConfig run = ReadRunConfig(folder);
  loaded.config = run.model;
  loaded.tokenizer = StoredTokenizer(folder, run);
  const int64_t bytes = EstimateMemory(run.model, 1, precision).parameters;
  if (bytes > FreeBytes() / 2) {
    Fail("{}: expected a model that fits in memory, got {} bytes of weights and {} free", folder, bytes,
         FreeBytes());
  }
  loaded.decoder = MakeDecoder(run.model, precision);
  LoadWeights(folder, run.model, &loaded.decoder->parameters());
  loaded.decoder->WeightsChanged();
  return loaded;
}

}  // namespace strata
