#ifndef STRATA_MODEL_SAFETENSORS_H_
#define STRATA_MODEL_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace strata {

// One tensor of a safetensors file. `dtype` is F32, F64, I64, U64 or BF16.
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

// A whole file in memory, checked before use: header size, JSON, dtypes, shapes, offsets that neither overlap
// nor leave the file nor leave gaps. Every fault is an Error that names file, tensor, expected and found.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* Find(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::vector<char> bytes_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace strata

#endif  // STRATA_MODEL_SAFETENSORS_H_
