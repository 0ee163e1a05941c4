#ifndef STRATA_MODEL_SAFETENSORS_H_
#define STRATA_MODEL_SAFETENSORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace strata {

// Which dtypes are accepted: those of strata's own files (F32, F64, I64, U64, BF16) or all of the format,
// which are only passed on. For kOwn a tensor's data must also be aligned to its element.
enum class Dtypes { kOwn, kAll };

// One tensor of a safetensors file.
struct TensorView {
  std::string name, dtype;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  int64_t bytes = 0;
};

// Writes all or nothing: to PATH.tmp, flushed to disk, renamed over PATH. Error (the old file survives) if
// the disk is full or the folder not writable.
void WriteSafetensors(const std::string& path, const std::vector<TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata);

// Gives the bytes of a tensor; they need to last until the next call.
using TensorSource = std::function<const void*(const TensorView&)>;
// The same for tensors of every dtype whose bytes do not fit in memory together: `source` is asked for one at
// a time, in an order of the writer's choice.
void WriteSafetensors(const std::string& path, const std::vector<TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata, const TensorSource& source);

// The header of a file, checked as SafetensorsFile says, without the tensors' bytes (`data` is null).
class SafetensorsHeader {
 public:
  SafetensorsHeader(const std::string& path, Dtypes dtypes);
  const std::string& path() const { return path_; }
  // In the order of their bytes, which follow each other without gaps from offset 0 on.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  int64_t data_bytes() const { return data_bytes_; }
  // Reads bytes [offset, offset + bytes) of the tensors' data.
  void Read(int64_t offset, int64_t bytes, char* data) const;

 private:
  std::string path_;
  int64_t data_ = 0, data_bytes_ = 0;  // where the data begins in the file; its size
  std::vector<TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

// A whole file in memory, checked before use: header size, JSON, dtypes, shapes, offsets that neither overlap
// nor leave the file nor leave gaps. Every fault is an Error that names file, tensor, expected and found.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* Find(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return header_.metadata(); }

 private:
  SafetensorsHeader header_;
  std::vector<char> bytes_;
  std::vector<TensorView> tensors_;
};

}  // namespace strata

#endif  // STRATA_MODEL_SAFETENSORS_H_
