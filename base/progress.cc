#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace strata {

Progress::Progress(std::string label, int64_t total, Mode mode)
    : label_(std::move(label)), total_(std::max<int64_t>(1, total)), mode_(mode) {
  if (mode_ == Mode::kAuto) mode_ = isatty(STDERR_FILENO) != 0 ? Mode::kBar : Mode::kLines;
}

Progress::~Progress() { Finish(); }

void Progress::Start(int64_t done) {
  start_ = done;
  begin_ = Clock::now();
}

std::string Progress::Text(int64_t done, const std::string& note) const {
  const double spent = std::chrono::duration<double>(Clock::now() - begin_).count();
  std::string left = "?";
  if (done > start_) {
    const double each = spent / static_cast<double>(done - start_);
    left = FormatDuration(each * static_cast<double>(total_ - done));
  }
  std::string bar;
  if (mode_ == Mode::kBar) {
    constexpr int64_t kWidth = 24;
    const int64_t full = std::clamp<int64_t>(done * kWidth / total_, 0, kWidth);
    bar = fmt::format("[{}{}] ", std::string(static_cast<size_t>(full), '='),
                      std::string(static_cast<size_t>(kWidth - full), ' '));
  }
  return fmt::format("{} {}{}/{}  {}  {} left", label_, bar, done, total_, note, left);
}

void Progress::Update(int64_t done, const std::string& note) {
  if (mode_ == Mode::kOff) return;
  const auto now = Clock::now();
  const auto pause = mode_ == Mode::kBar ? std::chrono::milliseconds(100) : std::chrono::milliseconds(2000);
  if (done < total_ && last_ != Clock::time_point() && now - last_ < pause) return;
  last_ = now;
  // \x1b[K clears what a longer line left behind.
  if (mode_ == Mode::kBar) {
    PrintMessage(fmt::format("\r{}\x1b[K", Text(done, note)));
  } else {
    PrintMessage(Text(done, note) + "\n");
  }
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::Finish() {
  if (drawn_ && mode_ == Mode::kBar) PrintMessage("\n");
  drawn_ = false;
}

void PrintMessage(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

std::string FormatDuration(double seconds) {
  const auto s = static_cast<int64_t>(std::clamp(seconds, 0.0, 1e9) + 0.5);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string FormatBytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) bytes /= 1024, ++unit;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

}  // namespace strata
