#include "report/curves.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace strata {
namespace {

// One curve a run, x -> y. Keeps the x that all runs have.
Band Join(const std::vector<std::map<double, double>>& curves) {
  Band band;
  if (curves.empty()) return band;
  for (const auto& [x, unused] : curves[0]) {
    std::vector<double> values;
    for (const auto& curve : curves) {
      if (const auto found = curve.find(x); found != curve.end()) values.push_back(found->second);
    }
    if (values.size() != curves.size()) continue;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    band.x.push_back(x);
    band.mean.push_back(std::accumulate(values.begin(), values.end(), 0.0) /
                        static_cast<double>(values.size()));
    band.low.push_back(*low);
    band.high.push_back(*high);
  }
  return band;
}

std::vector<std::map<double, double>> ValidationCurves(const std::vector<Records>& runs) {
  std::vector<std::map<double, double>> curves(runs.size());
  for (size_t r = 0; r < runs.size(); ++r) {
    for (const Record& record : runs[r].lines) {
      if (record.validation_loss >= 0) curves[r][static_cast<double>(record.step)] = record.validation_loss;
    }
  }
  return curves;
}

Band SiteBand(const std::vector<Records>& runs, std::vector<double> Record::*field) {
  std::vector<std::map<double, double>> curves(runs.size());
  for (size_t r = 0; r < runs.size(); ++r) {
    const auto& lines = runs[r].lines;
    const auto last = std::find_if(lines.rbegin(), lines.rend(),
                                   [field](const Record& record) { return !(record.*field).empty(); });
    if (last == lines.rend()) continue;
    const std::vector<double>& values = (*last).*field;
    for (size_t s = 0; s < values.size(); ++s) curves[r][static_cast<double>(s + 1)] = values[s];
  }
  return Join(curves);
}

}  // namespace

Band ValidationBand(const std::vector<Records>& runs) { return Join(ValidationCurves(runs)); }

Band DifferenceBand(const std::vector<Records>& runs, const std::vector<Records>& baseline) {
  const auto curves = ValidationCurves(runs), base = ValidationCurves(baseline);
  std::vector<std::map<double, double>> differences(std::min(curves.size(), base.size()));
  for (size_t r = 0; r < differences.size(); ++r) {
    for (const auto& [x, y] : curves[r]) {
      if (const auto found = base[r].find(x); found != base[r].end()) differences[r][x] = y - found->second;
    }
  }
  return Join(differences);
}

Band TrainingBand(const std::vector<Records>& runs, int64_t width) {
  std::vector<std::map<double, double>> curves(runs.size());
  for (size_t r = 0; r < runs.size(); ++r) {
    double sum = 0;
    int64_t count = 0;
    for (const Record& record : runs[r].lines) {
      sum += record.loss;
      if (++count < width) continue;
      const double middle = static_cast<double>(record.step) - static_cast<double>(width - 1) / 2;
      curves[r][middle] = sum / static_cast<double>(width);
      sum = 0, count = 0;
    }
  }
  return Join(curves);
}

int64_t SmoothingWidth(const std::vector<Records>& runs, int64_t points) {
  size_t longest = 0;
  for (const Records& run : runs) longest = std::max(longest, run.lines.size());
  return std::max<int64_t>(1, (static_cast<int64_t>(longest) + points - 1) / points);
}

Band StateBand(const std::vector<Records>& runs) { return SiteBand(runs, &Record::state_rms); }
Band UpdateBand(const std::vector<Records>& runs) { return SiteBand(runs, &Record::update_rms); }

}  // namespace strata
