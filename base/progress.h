#ifndef STRATA_BASE_PROGRESS_H_
#define STRATA_BASE_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace strata {

// Where a long job stands, on stderr: on a terminal a bar with the time left, redrawn in place; elsewhere
// plain lines, at most one every two seconds and always one at the end. kOff prints nothing.
class Progress {
 public:
  enum class Mode { kAuto, kBar, kLines, kOff };
  Progress(std::string label, int64_t total, Mode mode);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // The job began at `done` (a resumed one): the time left is taken from what was done here.
  void Start(int64_t done);
  void Update(int64_t done, const std::string& note);
  void Finish();  // ends the line; the destructor does it too

 private:
  std::string Text(int64_t done, const std::string& note) const;

  using Clock = std::chrono::steady_clock;
  std::string label_;
  int64_t total_, start_ = 0;
  Mode mode_;
  Clock::time_point begin_ = Clock::now(), last_;
  bool drawn_ = false;
};

// Text on stderr; one that cannot be written is no reason to stop.
void PrintMessage(const std::string& text);

// 75 -> "1:15", 3700 -> "1:01:40".
std::string FormatDuration(double seconds);
// 1536 -> "1.5 KiB".
std::string FormatBytes(double bytes);

}  // namespace strata

#endif  // STRATA_BASE_PROGRESS_H_
