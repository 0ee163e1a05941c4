#include "model/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/options.h"
#include "model/safetensors.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using Metadata = std::map<std::string, std::string>;

std::string ModelJson(const ModelConfig& config) {
  nlohmann::json json;
  WriteOptions(config, &json);
  return json.dump();
}

std::string ModelPath(const std::string& folder) { return folder + "/model.safetensors"; }
std::string StatePath(const std::string& folder) { return folder + "/state.safetensors"; }

TensorView View(const std::string& name, const Parameter& spec, const float* data) {
  return {name, "F32", spec.shape, data, spec.size() * int64_t{sizeof(float)}};
}

std::string Shown(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

const TensorView& Expect(const SafetensorsFile& file, const std::string& path, const std::string& name,
                         const std::string& dtype, const std::vector<int64_t>& shape) {
  const TensorView* view = file.Find(name);
  if (view == nullptr) Fail("{}: expected a tensor {} {}, got none", path, name, Shown(shape));
  if (view->dtype != dtype || view->shape != shape) {
    Fail("{}: {}: expected {} {}, got {} {}", path, name, dtype, Shown(shape), view->dtype,
         Shown(view->shape));
  }
  return *view;
}

void ReadTensor(const SafetensorsFile& file, const std::string& path, const std::string& name,
                const Parameter& spec, float* values) {
  const TensorView& view = Expect(file, path, name, "F32", spec.shape);
  std::memcpy(values, view.data, static_cast<size_t>(view.bytes));
}

int64_t ReadNumber(const SafetensorsFile& file, const std::string& path, const std::string& name,
                   const std::string& dtype) {
  int64_t value = 0;
  std::memcpy(&value, Expect(file, path, name, dtype, {1}).data, sizeof(value));
  return value;
}

// Tensors that nobody asked for are a sign of another model.
void ExpectCount(const SafetensorsFile& file, const std::string& path,
                 const std::vector<std::string>& known) {
  for (const TensorView& view : file.tensors()) {
    if (std::find(known.begin(), known.end(), view.name) == known.end()) {
      Fail("{}: expected {} tensors, got one more: {}", path, known.size(), view.name);
    }
  }
}

int64_t StepOf(const SafetensorsFile& file, const std::string& path) {
  const auto found = file.metadata().find("step");
  int64_t step = -1;
  if (found != file.metadata().end()) {
    const std::string& text = found->second;
    std::from_chars(text.data(), text.data() + text.size(), step);
  }
  if (step < 0) Fail("{}: expected a step in the metadata, got {}", path, step == -1 ? "none" : "a bad one");
  return step;
}

void ExpectConfig(const SafetensorsFile& file, const std::string& path, const ModelConfig& config) {
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != "1") {
    Fail("{}: expected format version 1, got {}", path,
         format == file.metadata().end() ? "none (not a checkpoint of strata)" : format->second);
  }
  const auto stored = file.metadata().find("config");
  if (stored == file.metadata().end() || stored->second != ModelJson(config)) {
    Fail("{}: expected weights of the configuration {}, got {}", path, ModelJson(config),
         stored == file.metadata().end() ? "none" : stored->second);
  }
}

int64_t ReadWeights(const SafetensorsFile& file, const std::string& path, const ModelConfig& config,
                    ParameterSet* parameters) {
  ExpectConfig(file, path, config);
  std::vector<std::string> names;
  for (int i = 0; i < parameters->count(); ++i) {
    names.push_back(parameters->spec(i).name);
    ReadTensor(file, path, names.back(), parameters->spec(i), parameters->value(i));
  }
  ExpectCount(file, path, names);
  return StepOf(file, path);
}

void Rename(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) Fail("{}: expected to rename it to {}, got: {}", from, to, error.message());
}

void WriteModel(const std::string& path, ParameterSet* parameters, const Metadata& metadata) {
  std::vector<TensorView> tensors;
  for (int i = 0; i < parameters->count(); ++i) {
    tensors.push_back(View(parameters->spec(i).name, parameters->spec(i), parameters->value(i)));
  }
  WriteSafetensors(path, tensors, metadata);
}

void WriteState(const std::string& path, const ParameterSet& parameters, AdamW* optimizer,
                const RunState& state, const Metadata& metadata) {
  std::vector<TensorView> tensors;
  for (int i = 0; i < parameters.count(); ++i) {
    const Parameter& spec = parameters.spec(i);
    tensors.push_back(View("first." + spec.name, spec, optimizer->first().data() + parameters.offset(i)));
    tensors.push_back(View("second." + spec.name, spec, optimizer->second().data() + parameters.offset(i)));
  }
  const auto number = [&](const char* name, const char* dtype, const void* value) {
    tensors.push_back({name, dtype, {1}, value, 8});
  };
  number("step", "I64", &state.step);
  number("epoch", "I64", &state.position.epoch);
  number("window", "I64", &state.position.window);
  number("seed", "U64", &state.seed);
  number("corpus", "U64", &state.corpus);
  WriteSafetensors(path, tensors, metadata);
}

// If a crash fell between the two renames, the new weights still lie beside the old ones.
void CompletePair(const std::string& folder, int64_t step) {
  const std::string pending = ModelPath(folder) + ".new";
  if (!fs::exists(pending)) return;
  if (StepOf(SafetensorsFile(pending), pending) == step) Rename(pending, ModelPath(folder));
}

}  // namespace

void SaveCheckpoint(const std::string& folder, const ModelConfig& config, ParameterSet* parameters,
                    AdamW* optimizer, const RunState& state) {
  const Metadata metadata = {
      {"format", "1"}, {"step", std::to_string(state.step)}, {"config", ModelJson(config)}};
  const std::string new_model = ModelPath(folder) + ".new", new_state = StatePath(folder) + ".new";
  try {
    WriteState(new_state, *parameters, optimizer, state, metadata);
    WriteModel(new_model, parameters, metadata);
  } catch (const Error&) {
    std::error_code ignored;
    fs::remove(new_state, ignored);
    fs::remove(new_model, ignored);
    throw;
  }
  Rename(new_state, StatePath(folder));
  Rename(new_model, ModelPath(folder));
}

RunState LoadCheckpoint(const std::string& folder, const ModelConfig& config, ParameterSet* parameters,
                        AdamW* optimizer) {
  const std::string path = StatePath(folder);
  const SafetensorsFile file(path);
  ExpectConfig(file, path, config);
  std::vector<std::string> names = {"step", "epoch", "window", "seed", "corpus"};
  for (int i = 0; i < parameters->count(); ++i) {
    const Parameter& spec = parameters->spec(i);
    names.push_back("first." + spec.name);
    ReadTensor(file, path, names.back(), spec, optimizer->first().data() + parameters->offset(i));
    names.push_back("second." + spec.name);
    ReadTensor(file, path, names.back(), spec, optimizer->second().data() + parameters->offset(i));
  }
  RunState state;
  state.step = ReadNumber(file, path, "step", "I64");
  state.position.epoch = ReadNumber(file, path, "epoch", "I64");
  state.position.window = ReadNumber(file, path, "window", "I64");
  state.seed = static_cast<uint64_t>(ReadNumber(file, path, "seed", "U64"));
  state.corpus = static_cast<uint64_t>(ReadNumber(file, path, "corpus", "U64"));
  ExpectCount(file, path, names);
  if (state.step < 0 || state.step != StepOf(file, path)) {
    Fail("{}: expected the step {} of the metadata, got {}", path, StepOf(file, path), state.step);
  }
  CompletePair(folder, state.step);
  const int64_t model_step = LoadWeights(folder, config, parameters);
  if (model_step != state.step) {
    Fail("{}: expected weights of step {} (the state's), got those of step {}", ModelPath(folder), state.step,
         model_step);
  }
  optimizer->set_step(state.step);
  return state;
}

int64_t LoadWeights(const std::string& folder, const ModelConfig& config, ParameterSet* parameters) {
  const std::string path = ModelPath(folder);
  return ReadWeights(SafetensorsFile(path), path, config, parameters);
}

}  // namespace strata
