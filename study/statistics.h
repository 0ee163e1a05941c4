#ifndef STRATA_STUDY_STATISTICS_H_
#define STRATA_STUDY_STATISTICS_H_

#include <vector>

namespace strata {

double Mean(const std::vector<double>& values);  // at least one
double Median(std::vector<double> values);       // at least one; of an even count, the middle of two
double SampleDeviation(const std::vector<double>& values);  // divides by n - 1; at least two

// P(T <= t) for Student's T with `df` > 0 degrees of freedom.
double StudentCdf(double t, double df);
// The t with P(T <= t) = p. 0 < p < 1, df > 0.
double StudentQuantile(double p, double df);

// Mean of the paired differences a[i] - b[i] and its two-sided confidence interval,
//   mean +- t_{(1 + level) / 2, n - 1} * deviation / sqrt(n).
// Fewer than two pairs give no interval: has_interval is false and low = high = mean.
struct PairedDifference {
  double mean = 0, low = 0, high = 0;
  bool has_interval = false;
};
PairedDifference ComparePairs(const std::vector<double>& a, const std::vector<double>& b,
                              double level = 0.95);

}  // namespace strata

#endif  // STRATA_STUDY_STATISTICS_H_
