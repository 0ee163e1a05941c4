#ifndef STRATA_RESIDUAL_PAPERS_TESTING_H_
#define STRATA_RESIDUAL_PAPERS_TESTING_H_

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "residual/walker.h"

// The papers' equations are transcribed on their own in plain double loops (papers_*_test.cc): nothing there
// comes from the library but the walker and the mechanisms under test.
namespace strata {

using Vec = std::vector<double>;
using Mat = std::vector<Vec>;
using Sublayer = std::function<Vec(int site, const Vec& x)>;

inline Vec ToySublayer(int site, const Vec& x) {
  Vec u(x.size());
  for (size_t d = 0; d < x.size(); ++d) {
    u[d] = 1.5 * std::tanh(0.7 * x[d] + (0.3 + 0.1 * site) * x[(d + 1) % x.size()] - 0.1);
  }
  return u;
}

// The mechanism under test and its parameters by name; runs one token.
struct Model {
  Model(const std::string& spec, int sites, int dim)
      : mechanism(MakeMechanism<double>(ParseResidual(spec), sites, dim)) {
    int64_t offset = 0;
    for (const Parameter& p : mechanism->Parameters()) {
      offsets[p.name] = {offset, p.size()};
      offset += p.size();
    }
    values.assign(static_cast<size_t>(offset), 0.0);
  }
  void Set(const std::string& name, const Vec& value) {
    const auto [offset, size] = offsets.at(name);
    ASSERT_EQ(static_cast<size_t>(size), value.size()) << name;
    std::copy(value.begin(), value.end(), values.begin() + offset);
  }
  // Random numbers of a size that lets every gate and norm matter.
  void Randomise(uint64_t seed) {
    Random random(seed);
    for (double& v : values) v = 0.8 * random.Normal();
  }
  void SetInitial() { values = InitialValues(mechanism->Parameters(), "", 1); }
  Vec Get(const std::string& name) const {
    const auto [offset, size] = offsets.at(name);
    return {values.begin() + offset, values.begin() + offset + size};
  }
  // x of every site, then what the head reads.
  Mat Run(const Vec& e, const Sublayer& sublayer) {
    walker = std::make_unique<Walker<double>>(*mechanism, Walker<double>::Mode::kTrain);
    Mat all;
    const double* x = walker->Begin(values.data(), e.data(), 1);
    for (int s = 0; s <= mechanism->sites(); ++s) {
      all.emplace_back(x, x + e.size());
      if (s == mechanism->sites()) break;
      const Vec u = sublayer(s, all.back());
      std::copy(u.begin(), u.end(), walker->update());
      x = walker->Next();
    }
    return all;
  }
  Vec Slot(int site, size_t k) const {
    const double* slot = walker->state(site).slots.at(k);
    return {slot, slot + mechanism->dim()};
  }
  std::unique_ptr<Mechanism<double>> mechanism;
  std::map<std::string, std::pair<int64_t, int64_t>> offsets;
  Vec values;
  std::unique_ptr<Walker<double>> walker;
};

inline void ExpectClose(const Mat& expected, const Mat& actual, const std::string& where) {
  ASSERT_EQ(expected.size(), actual.size()) << where;
  for (size_t s = 0; s < expected.size(); ++s) {
    double scale = 0;
    for (const double v : expected[s]) scale = std::max(scale, std::abs(v));
    for (size_t d = 0; d < expected[s].size(); ++d) {
      EXPECT_NEAR(expected[s][d], actual[s][d], 1e-12 * scale) << where << " site " << s << " channel " << d;
    }
  }
}

inline Vec RandomVec(int dim, uint64_t seed) {
  Random random(seed);
  Vec v(static_cast<size_t>(dim));
  for (double& x : v) x = 2 * random.Normal();
  return v;
}

inline Vec Times(const Vec& matrix, const Vec& v) {  // matrix [rows, v.size()]
  Vec out(matrix.size() / v.size(), 0.0);
  for (size_t i = 0; i < matrix.size(); ++i) out[i / v.size()] += matrix[i] * v[i % v.size()];
  return out;
}

inline Vec Pattern(int rows, int columns, int a, int b, int m,
                   double q) {  // ((i a + j b) mod m - floor(m / 2)) / q
  Vec out;
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) out.push_back(((i * a + j * b) % m - m / 2) / q);
  }
  return out;
}

inline double Logistic(double z) { return 1 / (1 + std::exp(-z)); }

}  // namespace strata

#endif  // STRATA_RESIDUAL_PAPERS_TESTING_H_
