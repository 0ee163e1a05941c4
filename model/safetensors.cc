#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "base/files.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kPrefix = 8;  // header length, little-endian
constexpr int64_t kLargestHeader = 100'000'000;
constexpr int kMostDimensions = 16;
constexpr const char* kMetadata = "__metadata__";

// Bytes of one element, or 0 for a dtype that strata does not use.
int64_t ElementBytes(const std::string& dtype) {
  static const std::map<std::string, int64_t> kBytes = {
      {"F64", 8}, {"I64", 8}, {"U64", 8}, {"F32", 4}, {"BF16", 2}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? 0 : found->second;
}

int64_t ExpectElementBytes(const std::string& where, const std::string& dtype) {
  const int64_t bytes = ElementBytes(dtype);
  if (bytes == 0) Fail("{}: expected a dtype of F32, F64, I64, U64 or BF16, got \"{}\"", where, dtype);
  return bytes;
}

// Bytes of a whole tensor, checked for overflow.
int64_t TensorBytes(const std::string& where, const std::vector<int64_t>& shape, int64_t element) {
  int64_t bytes = element;
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) {
      Fail("{}: expected a shape whose size fits 63 bits, got [{}]", where, fmt::join(shape, ", "));
    }
  }
  return bytes;
}

std::string Shown(const Json& json) {
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// Follows the parser and stops it at what a header never holds: deep nesting, endless shapes, a key twice.
class HeaderGuard {
 public:
  explicit HeaderGuard(const std::string& path) : path_(path) {}
  bool operator()(int, Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (open_.size() == 3) Fail("{}: expected a header of tensors, got deeper nesting", path_);
        open_.emplace_back();
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        open_.pop_back();
        break;
      case Json::parse_event_t::key:
        if (!open_.back().keys.insert(parsed.get<std::string>()).second) {
          Fail("{}: expected each name once, got {} twice", path_, Shown(parsed));
        }
        break;
      case Json::parse_event_t::value:
        if (open_.size() == 3 && ++open_.back().values > kMostDimensions) {
          Fail("{}: expected at most {} dimensions, got more", path_, kMostDimensions);
        }
        break;
    }
    return true;
  }

 private:
  struct Level {
    std::set<std::string> keys;
    int values = 0;
  };
  const std::string& path_;
  std::vector<Level> open_;
};

Json ParseHeader(const std::string& path, const std::string& text) {
  try {
    // The parser copies its callback: the guard stays here.
    HeaderGuard guard(path);
    Json json = Json::parse(text, std::ref(guard));
    if (!json.is_object()) Fail("{}: expected a JSON object as header, got {}", path, json.type_name());
    return json;
  } catch (const Json::exception&) {
    Fail("{}: expected a safetensors header in JSON, got {}", path, Shown(text.substr(0, 24)));
  }
}

// [values] as numbers from 0 to 2^63 - 1.
std::vector<int64_t> Sizes(const std::string& where, const char* key, const Json& json) {
  std::vector<int64_t> sizes;
  bool good = json.is_array();
  for (size_t i = 0; good && i < json.size(); ++i) {
    good = json[i].is_number_unsigned() && json[i].get<uint64_t>() <= INT64_MAX;
    if (good) sizes.push_back(json[i].get<int64_t>());
  }
  if (!good) Fail("{}: {}: expected sizes from 0 to 2^63 - 1, got {}", where, key, Shown(json));
  return sizes;
}

// One entry of the header; data is the tensor's offset until the contents are read.
struct Entry {
  TensorView view;
  int64_t begin, end;
};

Entry ReadEntry(const std::string& path, const std::string& name, const Json& json, int64_t data_bytes) {
  const std::string where = path + ": " + name;
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!json.is_object() || !json.contains(key)) Fail("{}: expected a key \"{}\", got none", where, key);
  }
  if (json.size() != 3) Fail("{}: expected 3 keys, got {}", where, json.size());
  if (!json["dtype"].is_string()) Fail("{}: dtype: expected text, got {}", where, Shown(json["dtype"]));
  Entry entry{{name, json["dtype"].get<std::string>(), Sizes(where, "shape", json["shape"])}, 0, 0};
  const std::vector<int64_t> offsets = Sizes(where, "data_offsets", json["data_offsets"]);
  if (offsets.size() != 2) Fail("{}: data_offsets: expected 2 numbers, got {}", where, offsets.size());
  entry.begin = offsets[0];
  entry.end = offsets[1];
  const int64_t element = ExpectElementBytes(where, entry.view.dtype);
  entry.view.bytes = TensorBytes(where, entry.view.shape, element);
  if (entry.begin > entry.end || entry.end > data_bytes) {
    Fail("{}: expected data inside the file's {} bytes, got {} to {}", where, data_bytes, entry.begin,
         entry.end);
  }
  if (entry.end - entry.begin != entry.view.bytes) {
    Fail("{}: expected {} bytes for {} [{}], got {}", where, entry.view.bytes, entry.view.dtype,
         fmt::join(entry.view.shape, ", "), entry.end - entry.begin);
  }
  if (entry.begin % element != 0) {
    Fail("{}: expected data aligned to {} bytes, got offset {}", where, element, entry.begin);
  }
  return entry;
}

// Sorts by offset and checks that the tensors cover the data exactly.
void ExpectCovered(const std::string& path, int64_t data_bytes, std::vector<Entry>* entries) {
  std::stable_sort(entries->begin(), entries->end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t end = 0;
  for (const Entry& entry : *entries) {
    if (entry.begin != end) {
      Fail("{}: {}: expected data from byte {} ({}), got {}", path, entry.view.name, end,
           entry.begin < end ? "it overlaps another tensor" : "there is a gap", entry.begin);
    }
    end = entry.end;
  }
  if (end != data_bytes) Fail("{}: expected {} bytes of tensors, got {}", path, end, data_bytes);
}

void ReadInto(const std::string& path, std::ifstream* file, int64_t bytes, char* data) {
  file->read(data, bytes);
  if (file->gcount() != bytes) Fail("{}: expected {} bytes, got {}", path, bytes, file->gcount());
}

int64_t FileBytes(const std::string& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) Fail("{}: expected a safetensors file, got: {}", path, error.message());
  return static_cast<int64_t>(bytes);
}

// Reads the header with its length checked against the file before anything is allocated.
std::string ReadHeader(const std::string& path, std::ifstream* file, int64_t file_bytes) {
  if (file_bytes < kPrefix + 2) Fail("{}: expected a safetensors file, got only {} bytes", path, file_bytes);
  std::array<unsigned char, kPrefix> prefix;
  ReadInto(path, file, kPrefix, reinterpret_cast<char*>(prefix.data()));
  uint64_t length = 0;
  for (size_t i = prefix.size(); i-- > 0;) length = length << 8 | prefix[i];
  const auto most = static_cast<uint64_t>(std::min(kLargestHeader, file_bytes - kPrefix));
  if (length < 2 || length > most) {
    Fail("{}: expected a safetensors header of 2 to {} bytes, got {}", path, most, length);
  }
  std::string header(static_cast<size_t>(length), '\0');
  ReadInto(path, file, static_cast<int64_t>(length), header.data());
  if (header[0] != '{') {
    Fail("{}: expected a safetensors header in JSON, got {}", path, Shown(header.substr(0, 24)));
  }
  return header;
}

void ReadMetadata(const std::string& path, const Json& json, std::map<std::string, std::string>* metadata) {
  if (!json.is_object()) Fail("{}: {}: expected an object, got {}", path, kMetadata, Shown(json));
  for (const auto& item : json.items()) {
    if (!item.value().is_string()) {
      Fail("{}: {}: {}: expected text, got {}", path, kMetadata, item.key(), Shown(item.value()));
    }
    (*metadata)[item.key()] = item.value().get<std::string>();
  }
}

// The header of a file to write, padded with blanks to a multiple of 8 bytes.
std::string Header(const std::string& path, const std::vector<const TensorView*>& tensors,
                   const std::map<std::string, std::string>& metadata) {
  Json json = Json::object();
  if (!metadata.empty()) json[kMetadata] = metadata;
  int64_t begin = 0;
  std::set<std::string> names = {kMetadata};
  for (const TensorView* tensor : tensors) {
    const std::string where = path + ": " + tensor->name;
    const int64_t bytes = TensorBytes(where, tensor->shape, ExpectElementBytes(where, tensor->dtype));
    if (bytes != tensor->bytes) Fail("{}: expected {} bytes, got {}", where, bytes, tensor->bytes);
    if (!names.insert(tensor->name).second) Fail("{}: expected a name of its own, got it twice", where);
    json.push_back({tensor->name, Json{{"dtype", tensor->dtype},
                                       {"shape", Json(tensor->shape)},
                                       {"data_offsets", Json(std::vector<int64_t>{begin, begin + bytes})}}});
    begin += bytes;
  }
  try {
    std::string text = json.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return text;
  } catch (const Json::exception&) {
    Fail("{}: expected names and metadata in valid UTF-8, got other bytes", path);
  }
}

}  // namespace

void WriteSafetensors(const std::string& path, const std::vector<TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  // Wide elements first: then every tensor is aligned without gaps.
  std::vector<const TensorView*> sorted;
  for (const TensorView& tensor : tensors) sorted.push_back(&tensor);
  std::stable_sort(sorted.begin(), sorted.end(), [](const TensorView* a, const TensorView* b) {
    return ElementBytes(a->dtype) > ElementBytes(b->dtype);
  });
  const std::string header = Header(path, sorted, metadata);
  std::array<char, kPrefix> prefix;
  for (size_t i = 0; i < prefix.size(); ++i) prefix[i] = static_cast<char>(header.size() >> (8 * i));
  AtomicFile file(path);
  file.Write(prefix.data(), kPrefix);
  file.Write(header.data(), static_cast<int64_t>(header.size()));
  for (const TensorView* tensor : sorted) file.Write(tensor->data, tensor->bytes);
  file.Commit();
}

SafetensorsFile::SafetensorsFile(const std::string& path) {
  const int64_t file_bytes = FileBytes(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) Fail("{}: expected a file that can be read, got: {}", path, std::strerror(errno));
  try {
    const std::string header = ReadHeader(path, &file, file_bytes);
    const int64_t data_bytes = file_bytes - kPrefix - static_cast<int64_t>(header.size());
    const Json json = ParseHeader(path, header);
    std::vector<Entry> entries;
    for (const auto& item : json.items()) {
      if (item.key() == kMetadata) {
        ReadMetadata(path, item.value(), &metadata_);
      } else {
        entries.push_back(ReadEntry(path, item.key(), item.value(), data_bytes));
      }
    }
    ExpectCovered(path, data_bytes, &entries);
    bytes_.resize(static_cast<size_t>(data_bytes));
    ReadInto(path, &file, data_bytes, bytes_.data());
    for (Entry& entry : entries) {
      entry.view.data = bytes_.data() + entry.begin;
      tensors_.push_back(std::move(entry.view));
    }
  } catch (const std::bad_alloc&) {
    Fail("{}: expected a file that fits in memory, got {} bytes", path, file_bytes);
  }
}

const TensorView* SafetensorsFile::Find(const std::string& name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const TensorView& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

}  // namespace strata
