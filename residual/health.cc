#include "residual/health.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace strata {
namespace {

// Mean and deviation of numbers that come one by one.
struct Moments {
  double count = 0, sum = 0, squares = 0;
  void Add(double v) {
    count += 1;
    sum += v;
    squares += v * v;
  }
  double Mean() const { return sum / count; }
  double Deviation() const { return std::sqrt(std::max(0.0, squares / count - Mean() * Mean())); }
};

double SlotSpread(const State<float>& s, int64_t dim) {
  const auto slots = static_cast<double>(s.slots.size());
  double apart = 0, size = 0;
  for (int64_t i = 0; i < s.tokens * dim; ++i) {
    double mean = 0;
    for (const float* slot : s.slots) mean += double{slot[i]} / slots;
    for (const float* slot : s.slots) {
      apart += (double{slot[i]} - mean) * (double{slot[i]} - mean);
      size += double{slot[i]} * double{slot[i]};
    }
  }
  return size > 0 ? std::sqrt(apart / size) : 0;
}

// to = keep times from, matrices [n, n] (to, from).
void MultiplyLeft(int n, const float* keep, std::vector<double>* product) {
  const std::vector<double> from = *product;
  const auto at = [n](int j, int k) { return static_cast<size_t>(j * n + k); };
  for (int j = 0; j < n; ++j) {
    for (int k = 0; k < n; ++k) {
      double sum = 0;
      for (int i = 0; i < n; ++i) sum += double{keep[j * n + i]} * from[at(i, k)];
      (*product)[at(j, k)] = sum;
    }
  }
}

struct Sums {
  double row_error = 0, column_error = 0, largest_row = 0, largest_column = 0;
};

template <class Number>
Sums SumsOf(int n, const Number* matrix) {
  Sums s;
  for (int j = 0; j < n; ++j) {
    double row = 0, column = 0;
    for (int k = 0; k < n; ++k) {
      row += static_cast<double>(matrix[j * n + k]);
      column += static_cast<double>(matrix[k * n + j]);
    }
    s.row_error = std::max(s.row_error, std::abs(row - 1));
    s.column_error = std::max(s.column_error, std::abs(column - 1));
    s.largest_row = std::max(s.largest_row, std::abs(row));
    s.largest_column = std::max(s.largest_column, std::abs(column));
  }
  return s;
}

void MeasureKeep(const Mechanism<float>& mechanism, const Walker<float>& walker,
                 std::map<std::string, double>* values) {
  const int n = mechanism.open_slots(), sites = mechanism.sites();
  const int64_t tokens = walker.state(0).tokens;
  const auto size = static_cast<size_t>(n * n);
  std::vector<Coefs<float>> keeps;
  for (int site = 0; site < sites; ++site) keeps.push_back(walker.coefs(site));
  Sums worst;
  double forward = 0, backward = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<double> product(size, 0.0);
    for (int k = 0; k < n; ++k) product[static_cast<size_t>(k * n + k)] = 1;
    for (int site = 0; site < sites; ++site) {
      const float* keep = keeps[static_cast<size_t>(site)].keep.data() + t * n * n;
      const Sums one = SumsOf(n, keep);
      worst.row_error = std::max(worst.row_error, one.row_error);
      worst.column_error = std::max(worst.column_error, one.column_error);
      MultiplyLeft(n, keep, &product);
    }
    const Sums all = SumsOf(n, product.data());
    forward += all.largest_row / static_cast<double>(tokens);
    backward += all.largest_column / static_cast<double>(tokens);
  }
  *values = {{"keep_row_error", worst.row_error},
             {"keep_column_error", worst.column_error},
             {"gain_forward", forward},
             {"gain_backward", backward}};
}

void MeasureGates(const Mechanism<float>& mechanism, const Walker<float>& walker, Health* health) {
  Moments gates;
  for (int site = 0; site < mechanism.sites(); ++site) {
    const Rule rule = mechanism.At(site);
    const Coefs<float> coefs = walker.coefs(site);
    if (rule.normed) {  // the gate is inside the read
      for (const Intermediate& inside : walker.Inside(site)) {
        if (inside.name != "gate") continue;
        for (const double g : inside.values) gates.Add(g);
      }
    } else if (rule.write != Coef::kOne) {
      for (int64_t i = 0; i < coefs.write.size(); ++i) gates.Add(double{coefs.write[i]});
    }
  }
  if (gates.count == 0) return;
  health->values["gate_mean"] = gates.Mean();
  health->values["gate_deviation"] = gates.Deviation();
}

// Mean over tokens, and sites with at least two slots, of the entropy of |read| over ln(slots).
double DepthEntropy(const Mechanism<float>& mechanism, const Walker<float>& walker) {
  Moments all;
  for (int site = 0; site <= mechanism.sites(); ++site) {
    const Rule rule = mechanism.At(site);
    if (rule.slots < 2 || rule.read == Coef::kOne) continue;
    const int64_t width = rule.read == Coef::kChannel ? mechanism.dim() : 1,
                  tokens = walker.state(site).tokens;
    const Coefs<float> coefs = walker.coefs(site);
    const float* read = coefs.read.data();
    for (int64_t i = 0; i < tokens * width; ++i) {
      const float* first = read + i / width * rule.slots * width + i % width;
      double total = 0, entropy = 0;
      for (int k = 0; k < rule.slots; ++k) total += std::abs(double{first[k * width]});
      for (int k = 0; k < rule.slots; ++k) {
        const double share = std::abs(double{first[k * width]}) / total;
        if (share > 0) entropy -= share * std::log(share);
      }
      if (total > 0) all.Add(entropy / std::log(rule.slots));
    }
  }
  return all.count > 0 ? all.Mean() : 1;
}

void Warn(bool doubly_stochastic, Health* health) {
  const auto check = [&](const char* name, double least, double most, const char* meaning) {
    const auto found = health->values.find(name);
    if (found == health->values.end() || (found->second >= least && found->second <= most)) return;
    health->warnings[name] =
        fmt::format("{} is {:.3g}, outside {:g} to {:g}: {}", name, found->second, least, most, meaning);
  };
  constexpr double kNone = 1e30;
  check("slot_spread", 1e-6, kNone, "the slots are equal, so the model is one stream at the cost of many");
  check("gain_forward", 0.1, 10, "the keep matrices make signals vanish or explode over depth");
  check("gain_backward", 0.1, 10, "the keep matrices make gradients vanish or explode over depth");
  check("gate_mean", 0.01, 1.99, "the gates are closed or saturated");
  check("depth_entropy", 0.05, 1.01, "every read sees a single slot");
  if (!doubly_stochastic) return;
  check("keep_row_error", 0, 1e-3, "the rows of keep do not sum to 1");
  check("keep_column_error", 0, 0.5, "Sinkhorn has not converged: the logits have grown too far apart");
}

}  // namespace

Health MeasureHealth(const Mechanism<float>& mechanism, const Walker<float>& walker) {
  Health health;
  const Rule first = mechanism.At(0), head = mechanism.At(mechanism.sites());
  const int64_t tokens = walker.state(0).tokens;
  if (tokens == 0) return health;
  const bool streams = first.slots > 1 && head.slots == first.slots;
  if (streams && first.keep == Coef::kMatrix) MeasureKeep(mechanism, walker, &health.values);
  if (streams) health.values["slot_spread"] = SlotSpread(walker.state(mechanism.sites()), mechanism.dim());
  MeasureGates(mechanism, walker, &health);
  if (head.slots > first.slots) health.values["depth_entropy"] = DepthEntropy(mechanism, walker);
  Warn(mechanism.doubly_stochastic(), &health);
  return health;
}

}  // namespace strata
