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

using Json = nlohmann::json;

constexpr int64_t kPrefix = 8;  // header length, little-endian
constexpr int64_t kLargestHeader = 100'000'000;
constexpr int kMostDimensions = 16;
constexpr const char* kMetadata = "__metadata__";

std::string Shown(const Json& json) {
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// Bits of one element, or 0 for a dtype that is not accepted.
int64_t ElementBits(const std::string& dtype, Dtypes dtypes) {
  static const std::map<std::string, int64_t> kOwn = {
      {"F64", 64}, {"I64", 64}, {"U64", 64}, {"F32", 32}, {"BF16", 16}};
  static const std::map<std::string, int64_t> kFurther = {
      {"C64", 64},    {"I32", 32},    {"U32", 32}, {"F16", 16},        {"I16", 16},       {"U16", 16},
      {"I8", 8},      {"U8", 8},      {"BOOL", 8}, {"F8_E4M3", 8},     {"F8_E5M2", 8},    {"F8_E8M0", 8},
      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},   {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};
  auto found = kOwn.find(dtype);
  if (found != kOwn.end()) return found->second;
  found = kFurther.find(dtype);
  return dtypes == Dtypes::kOwn || found == kFurther.end() ? 0 : found->second;
}

int64_t ExpectElementBits(const std::string& where, const std::string& dtype, Dtypes dtypes) {
  const int64_t bits = ElementBits(dtype, dtypes);
  if (bits == 0) {
    Fail("{}: expected a dtype of {}, got {}", where,
         dtypes == Dtypes::kOwn ? "F32, F64, I64, U64 or BF16" : "the safetensors format", Shown(dtype));
  }
  return bits;
}

// Bytes of a whole tensor, checked for overflow.
int64_t TensorBytes(const std::string& where, const std::vector<int64_t>& shape, int64_t element_bits) {
  int64_t bits = element_bits;
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bits, extent, &bits)) {
      Fail("{}: expected a shape whose bits fit 63 bits, got [{}]", where, fmt::join(shape, ", "));
    }
  }
  if (bits % 8 != 0) Fail("{}: expected whole bytes, got a shape of {} bits", where, bits);
  return bits / 8;
}

// Reads along and refuses what a header never holds: deep nesting, endless shapes, a key twice.
class HeaderGuard : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderGuard(const std::string& path) : path_(path) {}
  bool null() override { return Value(); }
  bool boolean(bool) override { return Value(); }
  bool number_integer(int64_t) override { return Value(); }
  bool number_unsigned(uint64_t) override { return Value(); }
  bool number_float(double, const std::string&) override { return Value(); }
  bool string(std::string&) override { return Value(); }
  bool binary(binary_t&) override { return Value(); }
  bool start_object(size_t) override { return Open(); }
  bool start_array(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& name) override {
    if (!open_.back().keys.insert(name).second) {
      Fail("{}: expected each name once, got {} twice", path_, Shown(Json(name)));
    }
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  struct Level {
    std::set<std::string> keys;
    int values = 0;
  };
  bool Open() {
    if (open_.size() == 3) Fail("{}: expected a header of tensors, got deeper nesting", path_);
    open_.emplace_back();
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }
  bool Value() {
    if (open_.size() == 3 && ++open_.back().values > kMostDimensions) {
      Fail("{}: expected at most {} dimensions, got more", path_, kMostDimensions);
    }
    return true;
  }

  const std::string& path_;
  std::vector<Level> open_;
};

// Parses twice: a parser that asks while it builds takes quadratic time in the number of tensors.
Json ParseHeader(const std::string& path, const std::string& text) {
  HeaderGuard guard(path);
  Json json;
  if (Json::sax_parse(text, &guard)) json = Json::parse(text, nullptr, false);
  if (!json.is_object()) {
    Fail("{}: expected a safetensors header in JSON, got {}", path, Shown(text.substr(0, 24)));
  }
  return json;
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

// One entry of the header.
struct Entry {
  TensorView view;
  int64_t begin, end;
};

Entry ReadEntry(const std::string& path, const std::string& name, const Json& json, int64_t data_bytes,
                Dtypes dtypes) {
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
  const int64_t bits = ExpectElementBits(where, entry.view.dtype, dtypes);
  entry.view.bytes = TensorBytes(where, entry.view.shape, bits);
  if (entry.begin > entry.end || entry.end > data_bytes) {
    Fail("{}: expected data inside the file's {} bytes, got {} to {}", where, data_bytes, entry.begin,
         entry.end);
  }
  if (entry.end - entry.begin != entry.view.bytes) {
    Fail("{}: expected {} bytes for {} [{}], got {}", where, entry.view.bytes, entry.view.dtype,
         fmt::join(entry.view.shape, ", "), entry.end - entry.begin);
  }
  if (dtypes == Dtypes::kOwn && entry.begin % (bits / 8) != 0) {
    Fail("{}: expected data aligned to {} bytes, got offset {}", where, bits / 8, entry.begin);
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
                   const std::map<std::string, std::string>& metadata, Dtypes dtypes) {
  std::string text = "{";
  int64_t begin = 0;
  std::set<std::string> names = {kMetadata};
  // Member by member: the order of the bytes, which an object of this JSON library forgets.
  const auto add = [&](const std::string& name, const std::string& value) {
    text += fmt::format("{}{}:{}", text.size() > 1 ? "," : "", Json(name).dump(), value);
  };
  try {
    if (!metadata.empty()) add(kMetadata, Json(metadata).dump());
    for (const TensorView* tensor : tensors) {
      const std::string where = path + ": " + tensor->name;
      const int64_t bytes =
          TensorBytes(where, tensor->shape, ExpectElementBits(where, tensor->dtype, dtypes));
      if (bytes != tensor->bytes) Fail("{}: expected {} bytes, got {}", where, bytes, tensor->bytes);
      if (!names.insert(tensor->name).second) Fail("{}: expected a name of its own, got it twice", where);
      add(tensor->name, fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor->dtype,
                                    fmt::join(tensor->shape, ","), begin, begin + bytes));
      begin += bytes;
    }
  } catch (const Json::exception&) {
    Fail("{}: expected names and metadata in valid UTF-8, got other bytes", path);
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

// Writes the tensors, whose bytes `source` gives one after the other.
void Write(const std::string& path, const std::vector<TensorView>& tensors,
           const std::map<std::string, std::string>& metadata, Dtypes dtypes, const TensorSource& source) {
  // Wide elements first: then every tensor is aligned without gaps.
  std::vector<const TensorView*> sorted;
  for (const TensorView& tensor : tensors) sorted.push_back(&tensor);
  std::stable_sort(sorted.begin(), sorted.end(), [](const TensorView* a, const TensorView* b) {
    return ElementBits(a->dtype, Dtypes::kAll) > ElementBits(b->dtype, Dtypes::kAll);
  });
  const std::string header = Header(path, sorted, metadata, dtypes);
  std::array<char, kPrefix> prefix;
  for (size_t i = 0; i < prefix.size(); ++i) prefix[i] = static_cast<char>(header.size() >> (8 * i));
  AtomicFile file(path);
  file.Write(prefix.data(), kPrefix);
  file.Write(header.data(), static_cast<int64_t>(header.size()));
  for (const TensorView* tensor : sorted) file.Write(source(*tensor), tensor->bytes);
  file.Commit();
}

std::ifstream Open(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) Fail("{}: expected a file that can be read, got: {}", path, std::strerror(errno));
  return file;
}

}  // namespace

void WriteSafetensors(const std::string& path, const std::vector<TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  Write(path, tensors, metadata, Dtypes::kOwn, [](const TensorView& tensor) { return tensor.data; });
}

void WriteSafetensors(const std::string& path, const std::vector<TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata, const TensorSource& source) {
  Write(path, tensors, metadata, Dtypes::kAll, source);
}

SafetensorsHeader::SafetensorsHeader(const std::string& path, Dtypes dtypes) : path_(path) {
  const int64_t file_bytes = FileBytes(path);
  std::ifstream file = Open(path);
  try {
    const std::string header = ReadHeader(path, &file, file_bytes);
    data_ = kPrefix + static_cast<int64_t>(header.size());
    const Json json = ParseHeader(path, header);
    std::vector<Entry> entries;
    for (const auto& item : json.items()) {
      if (item.key() == kMetadata) {
        ReadMetadata(path, item.value(), &metadata_);
      } else {
        entries.push_back(ReadEntry(path, item.key(), item.value(), file_bytes - data_, dtypes));
      }
    }
    ExpectCovered(path, file_bytes - data_, &entries);
    for (Entry& entry : entries) tensors_.push_back(std::move(entry.view));
    data_bytes_ = file_bytes - data_;
  } catch (const std::bad_alloc&) {
    Fail("{}: expected a header that fits in memory, got one that does not", path);
  }
}

void SafetensorsHeader::Read(int64_t offset, int64_t bytes, char* data) const {
  std::ifstream file = Open(path_);
  file.seekg(data_ + offset);
  ReadInto(path_, &file, bytes, data);
}

SafetensorsFile::SafetensorsFile(const std::string& path) : header_(path, Dtypes::kOwn) {
  try {
    bytes_.resize(static_cast<size_t>(header_.data_bytes()));
  } catch (const std::bad_alloc&) {
    Fail("{}: expected a file that fits in memory, got {} bytes", path, header_.data_bytes());
  }
  header_.Read(0, header_.data_bytes(), bytes_.data());
  tensors_ = header_.tensors();
  const char* data = bytes_.data();
  for (TensorView& tensor : tensors_) {  // one after the other, without gaps
    tensor.data = data;
    data += tensor.bytes;
  }
}

const TensorView* SafetensorsFile::Find(const std::string& name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const TensorView& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

}  // namespace strata
