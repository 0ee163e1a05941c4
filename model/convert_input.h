#ifndef STRATA_MODEL_CONVERT_INPUT_H_
#define STRATA_MODEL_CONVERT_INPUT_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/safetensors.h"

namespace strata {

// The tensors of a model as it is released: one safetensors file, or a folder that holds model.safetensors or
// the shards that model.safetensors.index.json lists; and the numbers of the config.json beside them. Only
// headers are read before a tensor is asked for.
class ConvertInput {
 public:
  // Errors (exit 1): whatever SafetensorsHeader refuses; no such file in the folder; an index that is not
  // one, names a file outside the folder or a tensor that its shard lacks; a tensor in two shards.
  explicit ConvertInput(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<std::string>& files() const { return files_; }
  // `data` is null; dtypes are those of the format.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  // Of the file, or of the first shard.
  const std::map<std::string, std::string>& metadata() const { return headers_.front().metadata(); }
  // The bytes of tensors()[index].
  std::vector<char> Read(size_t index) const;

  const std::string& config_path() const { return config_path_; }
  bool has_config() const { return !config_.is_null(); }
  // The value of a key of config.json, at the top or within text_config; null if there is none.
  nlohmann::json Config(const std::string& key) const;

 private:
  void AddFile(const std::string& file);
  void AddShards(const std::string& folder, const std::string& index);
  void ReadConfig();

  struct Place {
    size_t file;
    int64_t offset;
  };
  std::string path_, config_path_;
  std::vector<std::string> files_;
  std::vector<SafetensorsHeader> headers_;
  std::vector<TensorView> tensors_;
  std::vector<Place> places_;  // of each tensor
  nlohmann::json config_;
};

}  // namespace strata

#endif  // STRATA_MODEL_CONVERT_INPUT_H_
