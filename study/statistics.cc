#include "study/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace strata {
namespace {

// The continued fraction of the incomplete beta function (NIST DLMF 8.17.22), evaluated from the front
// (modified Lentz). Converges fast for x < (a + 1) / (a + b + 2).
double BetaFraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto nonzero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / nonzero(1 - (a + b) * x / (a + 1)), value = d;
  for (int m = 1; m <= 10000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / nonzero(1 + even * d);
    c = nonzero(1 + even / c);
    value *= c * d;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / nonzero(1 + odd * d);
    c = nonzero(1 + odd / c);
    value *= c * d;
    if (std::abs(c * d - 1) < 1e-15) break;
  }
  return value;
}

// I_x(a, b), regularised; y = 1 - x, given apart since x may round to 1.
double IncompleteBeta(double a, double b, double x, double y) {
  if (x <= 0) return 0;
  if (y <= 0) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log(y));
  if (x < (a + 1) / (a + b + 2)) return front * BetaFraction(a, b, x) / a;
  return 1 - front * BetaFraction(b, a, y) / b;
}

}  // namespace

double Mean(const std::vector<double>& values) {
  if (values.empty()) Fail("mean: expected at least one value, got none");
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Median(std::vector<double> values) {
  if (values.empty()) Fail("median: expected at least one value, got none");
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double SampleDeviation(const std::vector<double>& values) {
  if (values.size() < 2) Fail("deviation: expected at least two values, got {}", values.size());
  const double mean = Mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double StudentCdf(double t, double df) {
  // Half of the mass beyond |t| is I_{df / (df + t^2)}(df / 2, 1 / 2).
  const double square = t * t;
  const double x = df / (df + square), y = square / (df + square);
  const double tail = IncompleteBeta(df / 2, 0.5, x, y) / 2;
  return t > 0 ? 1 - tail : tail;
}

double StudentQuantile(double p, double df) {
  if (!(p > 0 && p < 1)) Fail("quantile: expected a probability between 0 and 1, got {}", p);
  if (!(df > 0)) Fail("quantile: expected degrees of freedom above 0, got {}", df);
  if (p == 0.5) return 0;
  if (p > 0.5) return -StudentQuantile(1 - p, df);
  double low = -1, high = 0;
  while (StudentCdf(low, df) > p && low > -1e150) high = low, low *= 2;
  for (int i = 0; i < 200 && high - low > std::numeric_limits<double>::epsilon() * -low; ++i) {
    const double middle = (low + high) / 2;
    (StudentCdf(middle, df) > p ? high : low) = middle;
  }
  return (low + high) / 2;
}

PairedDifference ComparePairs(const std::vector<double>& a, const std::vector<double>& b, double level) {
  if (a.size() != b.size() || a.empty()) {
    Fail("paired difference: expected equally many values, at least one, got {} and {}", a.size(), b.size());
  }
  std::vector<double> differences(a.size());
  for (size_t i = 0; i < a.size(); ++i) differences[i] = a[i] - b[i];
  PairedDifference result;
  result.mean = result.low = result.high = Mean(differences);
  if (a.size() < 2) return result;
  const auto n = static_cast<double>(a.size());
  const double half = StudentQuantile((1 + level) / 2, n - 1) * SampleDeviation(differences) / std::sqrt(n);
  result.low -= half;
  result.high += half;
  result.has_interval = true;
  return result;
}

}  // namespace strata
