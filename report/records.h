#ifndef STRATA_REPORT_RECORDS_H_
#define STRATA_REPORT_RECORDS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

// One line of a run's metrics.jsonl. Evaluation fields are negative or empty where the step was not
// evaluated.
struct Record {
  int64_t step = 0, tokens = 0;
  double loss = 0;
  double validation_loss = -1, validation_nats_per_byte = -1;
  std::vector<double> state_rms, update_rms;  // per sublayer
  bool resumed = false;
};

struct Records {
  std::vector<Record> lines;
  bool cut = false;  // the last line was not whole and is left out: the run stopped while writing it
  bool resumed() const;
};

// Error naming file and line: not readable, or a line other than the last is not a record.
Records ReadRecords(const std::string& path);

}  // namespace strata

#endif  // STRATA_REPORT_RECORDS_H_
