#ifndef STRATA_OPS_COMPLEX_STEP_H_
#define STRATA_OPS_COMPLEX_STEP_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"

// For tests: derivatives by complex step, Im f(x + ih) / h. Nothing is subtracted, so they are exact to
// rounding.
namespace strata {

using Complex = std::complex<double>;
using Doubles = std::vector<double>;

inline Doubles RandomDoubles(int64_t size, Random* random) {
  Doubles v(static_cast<size_t>(size));
  for (double& x : v) x = random->Normal();
  return v;
}

// Gradients of <cotangent, f(inputs)> with respect to all inputs. f takes and returns vectors of Complex: a
// list of inputs, and the outputs laid end to end.
template <class F>
std::vector<Doubles> ComplexStep(F&& f, const std::vector<Doubles>& inputs, const Doubles& cotangent) {
  constexpr double kStep = 1e-40;
  std::vector<std::vector<Complex>> z;
  for (const Doubles& input : inputs) z.emplace_back(input.begin(), input.end());
  std::vector<Doubles> gradients(inputs);
  for (size_t a = 0; a < inputs.size(); ++a) {
    for (size_t i = 0; i < inputs[a].size(); ++i) {
      z[a][i] = Complex(inputs[a][i], kStep);
      const std::vector<Complex> y = f(z);
      EXPECT_EQ(y.size(), cotangent.size());
      double sum = 0;
      for (size_t j = 0; j < y.size(); ++j) sum += cotangent[j] * y[j].imag();
      gradients[a][i] = sum / kStep;
      z[a][i] = inputs[a][i];
    }
  }
  return gradients;
}

// |got - want| <= relative * the largest |want| of its array.
inline void ExpectGradients(const std::vector<Doubles>& got, const std::vector<Doubles>& want,
                            double relative = 1e-12) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t a = 0; a < want.size(); ++a) {
    ASSERT_EQ(got[a].size(), want[a].size()) << "array " << a;
    double scale = 0;
    for (const double w : want[a]) scale = std::max(scale, std::abs(w));
    ASSERT_TRUE(want[a].empty() || scale > 0)
        << "array " << a << " has no gradient: the check would be empty";
    for (size_t i = 0; i < want[a].size(); ++i) {
      ASSERT_NEAR(got[a][i], want[a][i], relative * scale) << "array " << a << " at " << i;
    }
  }
}

}  // namespace strata

#endif  // STRATA_OPS_COMPLEX_STEP_H_
