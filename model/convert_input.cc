#include "model/convert_input.h"

#include <filesystem>
#include <new>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/options.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

// As ParseJsonObject, but what is wrong is a file's content and not the request.
nlohmann::json ReadJsonObject(const std::string& path) {
  const std::string text = ReadFile(path);
  try {
    return ParseJsonObject(path, text);
  } catch (const Error& error) {
    throw Error(error.what());
  }
}

}  // namespace

ConvertInput::ConvertInput(const std::string& path) : path_(path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    AddFile(path);
    config_path_ = (fs::path(path).parent_path() / "config.json").string();
  } else {
    const std::string single = path + "/model.safetensors", index = single + ".index.json";
    if (fs::exists(single, ignored)) {
      AddFile(single);
    } else if (fs::exists(index, ignored)) {
      AddShards(path, index);
    } else {
      Fail("{}: expected model.safetensors or model.safetensors.index.json in it, got neither", path);
    }
    config_path_ = path + "/config.json";
  }
  ReadConfig();
}

void ConvertInput::AddFile(const std::string& file) {
  headers_.emplace_back(file, Dtypes::kAll);
  int64_t offset = 0;
  for (const TensorView& tensor : headers_.back().tensors()) {
    tensors_.push_back(tensor);
    places_.push_back({files_.size(), offset});
    offset += tensor.bytes;
  }
  files_.push_back(file);
}

void ConvertInput::AddShards(const std::string& folder, const std::string& index) {
  const nlohmann::json json = ReadJsonObject(index);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object() || map->empty()) {
    Fail("{}: expected an object \"weight_map\" of tensors and their files, got none", index);
  }
  std::set<std::string> shards;
  std::map<std::string, std::string> listed;
  for (const auto& item : map->items()) {
    const std::string shard = item.value().is_string() ? item.value().get<std::string>() : "";
    if (shard.empty() || shard.find_first_of("/\\") != std::string::npos ||
        shard.find('\0') != std::string::npos) {
      Fail("{}: {}: expected the name of a file in the same folder, got {}", index, item.key(),
           item.value().dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    }
    shards.insert(shard);
    listed[item.key()] = folder + "/" + shard;
  }
  for (const std::string& shard : shards) AddFile(folder + "/" + shard);
  std::map<std::string, std::string> found;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto [at, is_new] = found.emplace(tensors_[i].name, files_[places_[i].file]);
    if (!is_new) {
      Fail("{}: {}: expected it in one shard, got it in {} too", files_[places_[i].file], at->first,
           at->second);
    }
  }
  for (const auto& [name, file] : listed) {
    const auto at = found.find(name);
    if (at == found.end() || at->second != file) {
      Fail("{}: expected a tensor {} (the index lists it), got none", file, name);
    }
  }
}

void ConvertInput::ReadConfig() {
  std::error_code ignored;
  if (fs::exists(config_path_, ignored)) config_ = ReadJsonObject(config_path_);
}

std::vector<char> ConvertInput::Read(size_t index) const {
  const TensorView& tensor = tensors_[index];
  const Place& place = places_[index];
  std::vector<char> bytes;
  try {
    bytes.resize(static_cast<size_t>(tensor.bytes));
  } catch (const std::bad_alloc&) {
    Fail("{}: {}: expected a tensor that fits in memory, got {} bytes", files_[place.file], tensor.name,
         tensor.bytes);
  }
  headers_[place.file].Read(place.offset, tensor.bytes, bytes.data());
  return bytes;
}

nlohmann::json ConvertInput::Config(const std::string& key) const {
  if (config_.is_null()) return nullptr;
  const auto at = config_.find(key);
  if (at != config_.end()) return *at;
  const auto text = config_.find("text_config");
  if (text == config_.end() || !text->is_object() || !text->contains(key)) return nullptr;
  return text->at(key);
}

}  // namespace strata
