#include "model/metrics.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/files.h"

namespace strata {

using nlohmann::json;

std::string ToJson(const StepRecord& r) {
  nlohmann::ordered_json line = {{"step", r.step},      {"tokens", r.tokens},
                                 {"loss", r.loss},      {"gradient_norm", r.gradient_norm},
                                 {"lr", r.lr},          {"tokens_per_second", r.tokens_per_second},
                                 {"seconds", r.seconds}};
  if (r.validation_loss >= 0) {
    line["validation_loss"] = r.validation_loss;
    if (r.validation_nats_per_byte >= 0) line["validation_nats_per_byte"] = r.validation_nats_per_byte;
    line["state_rms"] = r.magnitudes.state;
    line["update_rms"] = r.magnitudes.update;
    for (const auto& [name, value] : r.health.values) line[name] = value;
  }
  if (r.resumed) line["resumed"] = true;
  return line.dump();
}

MetricsFile::MetricsFile(const std::string& folder, int64_t step) : path_(folder + "/metrics.jsonl") {
  std::string kept;
  if (std::filesystem::exists(path_)) {
    std::istringstream lines(ReadFile(path_));
    std::string line;
    while (std::getline(lines, line)) {
      const json record = json::parse(line, nullptr, false);
      const bool whole = record.is_object() && record.contains("step") && record["step"].is_number_integer();
      if (!whole || record["step"].get<int64_t>() > step) break;
      if (record.contains("seconds") && record["seconds"].is_number())
        seconds_ = record["seconds"].get<double>();
      kept += line + "\n";
    }
  }
  WriteFileAtomically(path_, kept);
  file_.reset(std::fopen(path_.c_str(), "ab"));
  if (file_ == nullptr) Fail("{}: expected to open it for writing, got: {}", path_, std::strerror(errno));
}

void MetricsFile::Add(const StepRecord& record) {
  const std::string line = ToJson(record) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fflush(file_.get()) != 0) {
    Fail("{}: expected to write a record, got: {}", path_, std::strerror(errno));
  }
}

}  // namespace strata
