#ifndef STRATA_MODEL_METRICS_H_
#define STRATA_MODEL_METRICS_H_

#include <cstdio>
#include <memory>
#include <string>

#include "model/trainer.h"

namespace strata {

// One line of metrics.jsonl.
std::string ToJson(const StepRecord& record);

// metrics.jsonl of a run's folder. Opening it cuts it back to the records of steps <= `step`, whole lines
// only; each record is handed to the system at once.
class MetricsFile {
 public:
  MetricsFile(const std::string& folder, int64_t step);
  void Add(const StepRecord& record);          // Error if it cannot be written
  double seconds() const { return seconds_; }  // of the last record kept

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  double seconds_ = 0;
};

}  // namespace strata

#endif  // STRATA_MODEL_METRICS_H_
