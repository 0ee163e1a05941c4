#ifndef STRATA_MODEL_CONVERT_TESTING_H_
#define STRATA_MODEL_CONVERT_TESTING_H_

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/testing.h"
#include "model/convert.h"
#include "model/safetensors.h"

// Made-up released checkpoints, spelled out from the layouts' descriptions and not from strata's tables.
namespace strata {

struct Tensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
  bool operator==(const Tensor&) const = default;
};
using Tensors = std::map<std::string, Tensor>;

inline Tensor RandomTensor(const std::string& dtype, const std::vector<int64_t>& shape, uint64_t seed) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  Random random(seed);
  Tensor tensor{dtype, shape, {}};
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(0.5 * random.Normal());
    char raw[sizeof(float)];
    std::memcpy(raw, &value, sizeof(value));
    tensor.bytes += dtype == "F32" ? std::string(raw, 4) : std::string(raw + 2, 2);  // BF16: the upper half
  }
  return tensor;
}

inline std::vector<double> ValuesOf(const Tensor& tensor) {
  std::vector<double> values;
  for (size_t i = 0; i < tensor.bytes.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, tensor.bytes.data() + i, sizeof(value));
    values.push_back(static_cast<double>(value));
  }
  return values;
}

// n slots, d width, r rank of every made-up checkpoint.
inline constexpr int64_t kN = 3, kD = 4, kR = 2;

inline Tensors DeepSeek(int64_t layers, const std::string& dtype, const std::string& prefix = "") {
  Tensors t;
  uint64_t seed = 1;
  for (int64_t i = 0; i < layers; ++i) {
    for (const char* sub : {"attn", "ffn"}) {
      const std::string name = fmt::format("{}layers.{}.hc_{}_", prefix, i, sub);
      t[name + "fn"] = RandomTensor(dtype, {kN * kN + 2 * kN, kN * kD}, seed++);
      t[name + "base"] = RandomTensor(dtype, {kN * kN + 2 * kN}, seed++);
      t[name + "scale"] = RandomTensor(dtype, {3}, seed++);
    }
  }
  t[prefix + "hc_head_fn"] = RandomTensor(dtype, {kN, kN * kD}, seed++);
  t[prefix + "hc_head_base"] = RandomTensor(dtype, {kN}, seed++);
  t[prefix + "hc_head_scale"] = RandomTensor(dtype, {1}, seed++);
  return t;
}

inline Tensors Kimi(int64_t layers, const std::string& dtype, const std::string& prefix = "model.") {
  Tensors t;
  uint64_t seed = 1;
  std::vector<std::string> names = {prefix + "output_attn_res"};
  for (int64_t i = 0; i < layers; ++i) {
    for (const char* sub : {"self_attention", "mlp"}) {
      names.push_back(fmt::format("{}layers.{}.{}_res", prefix, i, sub));
    }
  }
  for (const std::string& name : names) {
    t[name + "_norm.weight"] = RandomTensor(dtype, {kD}, seed++);
    t[name + "_proj.weight"] = RandomTensor(dtype, {1, kD}, seed++);
  }
  return t;
}

inline Tensors Qwen(int64_t layers, const std::string& dtype, const std::string& prefix = "model.") {
  Tensors t;
  uint64_t seed = 1;
  std::vector<std::string> names = {prefix + "hyper_connection_mixer."};
  for (int64_t i = 0; i < layers; ++i) {
    for (const char* sub : {"attn", "mlp"}) {
      names.push_back(fmt::format("{}layers.{}.{}_hyper_connection.", prefix, i, sub));
    }
  }
  for (const std::string& name : names) {
    t[name + "hc_norm.weight"] = RandomTensor(dtype, {kN * kD}, seed++);
    t[name + "input_mix_weight_down.weight"] = RandomTensor(dtype, {kR, kN * kD}, seed++);
    t[name + "input_mix_weight_up.weight"] = RandomTensor(dtype, {kN * kD, kR}, seed++);
    if (name == names[0]) continue;
    t[name + "block_inject_weight.weight"] = RandomTensor(dtype, {kN, kN * kD}, seed++);
  }
  return t;
}

class ConvertTest : public FolderTest {
 protected:
  std::string Write(const std::string& name, const Tensors& tensors,
                    const std::map<std::string, std::string>& metadata = {}) const {
    std::vector<TensorView> views;
    for (const auto& [tensor, t] : tensors) {
      views.push_back({tensor, t.dtype, t.shape, t.bytes.data(), static_cast<int64_t>(t.bytes.size())});
    }
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    WriteSafetensors(Path(name), views, metadata, [](const TensorView& view) { return view.data; });
    return Path(name);
  }
  Tensors Read(const std::string& name) const {
    const SafetensorsHeader file(Path(name), Dtypes::kAll);
    Tensors tensors;
    int64_t offset = 0;
    for (const TensorView& view : file.tensors()) {
      Tensor tensor{view.dtype, view.shape, std::string(static_cast<size_t>(view.bytes), ' ')};
      file.Read(offset, view.bytes, tensor.bytes.data());
      offset += view.bytes;
      tensors[view.name] = std::move(tensor);
    }
    return tensors;
  }
  ConvertRequest From(const std::string& layout, const std::string& in,
                      const std::string& out = "ours") const {
    return {Path(in), Path(out), layout, ConvertRequest::Direction::kFrom, {}, 0, false};
  }
  ConvertRequest To(const std::string& layout, const std::string& in, const std::string& out = "back") const {
    return {Path(in), Path(out), layout, ConvertRequest::Direction::kTo, {}, 0, false};
  }
  static ConvertResult Do(const ConvertRequest& request) {
    return Convert(request, [](int64_t, int64_t) {});
  }
  // The message of a request that must fail and leave no file behind.
  std::string Refusal(const ConvertRequest& request) const {
    const std::string message = ErrorOf([&] { Do(request); });
    EXPECT_FALSE(message.empty());
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(request.out));
    EXPECT_FALSE(std::filesystem::exists(request.out + ".tmp"));
    return message;
  }
};

}  // namespace strata

#endif  // STRATA_MODEL_CONVERT_TESTING_H_
