// Gradients of every mechanism along random directions, over the whole grid of slots, sites and dims.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "residual/testing.h"

namespace strata {
namespace {

using Complex = std::complex<double>;
constexpr double kStep = 1e-40;

// "sites.s.scale" for "sites.3.scale".
std::string Kind(const std::string& name) {
  return name.rfind("sites.", 0) == 0 ? "sites.s" + name.substr(name.find('.', 6)) : name;
}

class Directions {
 public:
  Directions(const std::string& spec, int sites, int64_t dim)
      : toy_(spec, sites, dim),
        complex_(spec, sites, dim),
        walker_(*complex_.mechanism, Walker<Complex>::Mode::kInfer) {
    const auto seed = static_cast<uint64_t>(91 * sites + dim);
    toy_.Randomise(seed);
    const auto e = RandomNumbers(kTokens * dim, 1.5, seed + 2);
    cotangent_ = RandomNumbers(kTokens * dim, 1, seed + 3);
    Walker<double> walker(*toy_.mechanism, Walker<double>::Mode::kTrain);
    const auto all = Forward(toy_, &walker, e);
    gradients_ = Backward(toy_, &walker, all, cotangent_);
    complex_.parameters.assign(toy_.parameters.begin(), toy_.parameters.end());
    complex_.weights.assign(toy_.weights.begin(), toy_.weights.end());
    e_.assign(e.begin(), e.end());
    for (const auto* numbers : {&gradients_.embedding, &gradients_.parameters, &gradients_.weights}) {
      for (const double g : *numbers) largest_ = std::max(largest_, std::abs(g));
    }
  }

  // Largest error, relative to the largest gradient of the tensors on the direction (or 1e-4 of the largest
  // of all).
  double Worst() {
    double worst = std::max(Along({{0, e_.size()}}, &e_, gradients_.embedding),
                            Along({{0, complex_.weights.size()}}, &complex_.weights, gradients_.weights));
    std::map<std::string, Pieces> kinds;
    size_t at = 0;
    for (const Parameter& p : toy_.mechanism->Parameters()) {
      const auto size = static_cast<size_t>(p.size());
      kinds[Kind(p.name)].push_back({at, at + size});
      at += size;
    }
    for (const auto& [kind, pieces] : kinds) {
      worst = std::max(worst, Along(pieces, &complex_.parameters, gradients_.parameters));
    }
    return worst;
  }

 private:
  static constexpr int64_t kTokens = 2;
  using Pieces = std::vector<std::pair<size_t, size_t>>;

  double Along(const Pieces& pieces, Numbers<Complex>* where, const Numbers<double>& gradient) {
    Random random(7);
    double expected = 0, scale = 0, length = 0;
    for (const auto& [begin, end] : pieces) {
      for (size_t i = begin; i < end; ++i) {
        const double direction = random.Normal();
        (*where)[i].imag(kStep * direction);
        expected += direction * gradient[i];
        length += direction * direction;
        scale = std::max(scale, std::abs(gradient[i]));
      }
    }
    const auto x = Forward(complex_, &walker_, e_).back();
    double actual = 0;
    for (size_t i = 0; i < x.size(); ++i) actual += cotangent_[i] * x[i].imag() / kStep;
    for (const auto& [begin, end] : pieces) {
      for (size_t i = begin; i < end; ++i) (*where)[i].imag(0);
    }
    const double rounding = toy_.dim == 1 ? 1e-3 : 1e-12;
    return std::abs(actual - expected) / (std::max({scale, 1e-4 * largest_, rounding}) * std::sqrt(length));
  }

  Toy<double> toy_;
  Toy<Complex> complex_;
  Walker<Complex> walker_;
  Numbers<Complex> e_;
  Numbers<double> cotangent_;
  Gradients<double> gradients_;
  double largest_ = 0;
};

// Options that make a mechanism have `slots` slots; empty: it has no such option. "-": not with so many.
std::string WithSlots(const std::string& name, int slots) {
  for (const OptionDoc& option : OptionsOf(name, {4, 8, 0})) {
    if (option.name != "slots") continue;
    if (name == "krom" && (slots & (slots - 1)) != 0) return "-";
    if (name == "mhc-lite" && slots > 5) return "-";
    return fmt::format(":slots={}", slots);
  }
  return "";
}

class Grid : public testing::TestWithParam<std::string> {};

TEST_P(Grid, GradientsAlongRandomDirectionsAreTheComplexStepDerivatives) {
  const std::string name = GetParam();
  double worst = 0;
  int cases = 0;
  for (const int slots : {1, 2, 3, 4, 5, 8}) {
    const std::string options = WithSlots(name, slots);
    if (options == "-" || (options.empty() && slots > 1)) continue;
    for (int sites = 1; sites <= 9; ++sites) {
      for (const int64_t dim : {1, 3, 16, 17, 64}) {
        const double error = Directions(name + options, sites, dim).Worst();
        EXPECT_LE(error, 1e-11) << name << options << " sites " << sites << " dim " << dim;
        worst = std::max(worst, error);
        ++cases;
      }
    }
  }
  std::printf("%-10s %4d cases, largest relative gradient error %.1e\n", name.c_str(), cases, worst);
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Every, Grid, testing::ValuesIn(MechanismNames()), TestName);

}  // namespace
}  // namespace strata
