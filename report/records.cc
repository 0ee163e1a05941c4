#include "report/records.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"

namespace strata {
namespace {

using nlohmann::json;

// Throws json::exception where a field is missing or of another type.
Record ToRecord(const json& line) {
  Record record;
  record.step = line.at("step").get<int64_t>();
  record.tokens = line.at("tokens").get<int64_t>();
  record.loss = line.at("loss").get<double>();
  record.validation_loss = line.value("validation_loss", -1.0);
  record.validation_nats_per_byte = line.value("validation_nats_per_byte", -1.0);
  record.state_rms = line.value("state_rms", std::vector<double>());
  record.update_rms = line.value("update_rms", std::vector<double>());
  record.resumed = line.value("resumed", false);
  return record;
}

}  // namespace

bool Records::resumed() const {
  return std::any_of(lines.begin(), lines.end(), [](const Record& record) { return record.resumed; });
}

Records ReadRecords(const std::string& path) {
  const std::string text = ReadFile(path);
  Records records;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) {
      records.cut = true;
      break;
    }
    ++number;
    try {
      records.lines.push_back(ToRecord(json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                                   text.begin() + static_cast<std::ptrdiff_t>(end))));
    } catch (const json::exception&) {
      Fail("{}:{}: expected a record with step, tokens and loss, got: {}", path, number,
           text.substr(begin, std::min<size_t>(end - begin, 60)));
    }
    begin = end + 1;
  }
  return records;
}

}  // namespace strata
