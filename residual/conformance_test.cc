// Laws that hold for every mechanism: gradients, and how updates and parameters reach the head.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "residual/testing.h"

namespace strata {
namespace {

using Complex = std::complex<double>;
constexpr double kStep = 1e-40;
constexpr double kTolerance = 1e-11;

// Checks gradients of one configuration against complex-step derivatives of <cotangent, head x>.
class GradientCheck {
 public:
  GradientCheck(const std::string& spec, int sites, int64_t dim)
      : spec_(spec),
        toy_(spec, sites, dim),
        complex_(spec, sites, dim),
        walker_(*complex_.mechanism, kInfer) {
    constexpr int64_t kTokens = 3;
    const auto seed = static_cast<uint64_t>(37 * sites + dim);
    toy_.Randomise(seed);
    e_ = RandomNumbers(kTokens * dim, 1.5, seed + 2);
    cotangent_ = RandomNumbers(kTokens * dim, 1, seed + 3);
    Walker<double> walker(*toy_.mechanism, Walker<double>::Mode::kTrain);
    const auto all = Forward(toy_, &walker, e_);
    gradients_ = Backward(toy_, &walker, all, cotangent_);
    complex_.parameters.assign(toy_.parameters.begin(), toy_.parameters.end());
    complex_.weights.assign(toy_.weights.begin(), toy_.weights.end());
    complex_e_.assign(e_.begin(), e_.end());
  }

  // Largest error over all tensors, each relative to its largest gradient (or 1e-4 of the largest of all).
  double Worst() {
    double worst = Tensor("embedding", &complex_e_, 0, gradients_.embedding.size(), gradients_.embedding);
    size_t at = 0;
    for (const Parameter& p : toy_.mechanism->Parameters()) {
      const auto size = static_cast<size_t>(p.size());
      worst = std::max(worst, Tensor(p.name, &complex_.parameters, at, size, gradients_.parameters));
      at += size;
    }
    const auto size = static_cast<size_t>(toy_.dim) + 1;
    for (size_t s = 0; s < static_cast<size_t>(toy_.sites); ++s) {
      worst = std::max(worst, Tensor(fmt::format("sublayer {}", s), &complex_.weights, s * size, size,
                                     gradients_.weights));
    }
    return worst;
  }

 private:
  static constexpr auto kInfer = Walker<Complex>::Mode::kInfer;

  double Derivative() {
    const auto x = Forward(complex_, &walker_, complex_e_).back();
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += cotangent_[i] * x[i].imag();
    return sum / kStep;
  }

  double LargestGradient() const {
    double largest = 0;
    for (const auto* numbers : {&gradients_.embedding, &gradients_.parameters, &gradients_.weights}) {
      for (const double g : *numbers) largest = std::max(largest, std::abs(g));
    }
    return largest;
  }

  // Element by element where the tensor is small, else a few elements and three dense random directions.
  double Tensor(const std::string& name, Numbers<Complex>* where, size_t begin, size_t size,
                const Numbers<double>& gradient) {
    double scale = 0, worst = 0;
    for (size_t i = 0; i < size; ++i) scale = std::max(scale, std::abs(gradient[begin + i]));
    // Where a gate is saturated, or one channel is normalised to its sign, what is left of a gradient is the
    // rounding of the larger terms that it came from.
    const double rounding = toy_.dim == 1 ? 1e-4 : 0;
    if (scale > 0) scale = std::max({scale, rounding, 1e-4 * LargestGradient()});
    const auto note = [&](double expected, double actual, double of) {
      if (scale == 0) {
        EXPECT_LT(std::abs(expected), 1e-14) << spec_ << " " << name << ": gradient exactly zero";
        return;
      }
      worst = std::max(worst, std::abs(expected - actual) / (of * scale));
      EXPECT_LE(std::abs(expected - actual), kTolerance * of * scale)
          << spec_ << " sites " << toy_.sites << " dim " << toy_.dim << " " << name;
    };
    Random random(HashName(name));
    const size_t elements = size <= 12 ? size : 3;
    for (size_t n = 0; n < elements; ++n) {
      const size_t i = begin + (size <= 12 ? n : static_cast<size_t>(random.Below(size)));
      (*where)[i].imag(kStep);
      note(Derivative(), gradient[i], 1);
      (*where)[i].imag(0);
    }
    for (int n = 0; size > 12 && n < 2; ++n) {
      double expected = 0, length = 0;
      for (size_t i = begin; i < begin + size; ++i) {
        const double direction = random.Normal();
        (*where)[i].imag(kStep * direction);
        expected += direction * gradient[i];
        length += direction * direction;
      }
      note(Derivative(), expected, std::sqrt(length));
      for (size_t i = begin; i < begin + size; ++i) (*where)[i].imag(0);
    }
    return worst;
  }

  std::string spec_;
  Toy<double> toy_;
  Toy<Complex> complex_;
  Walker<Complex> walker_;
  Numbers<double> e_, cotangent_;
  Numbers<Complex> complex_e_;
  Gradients<double> gradients_;
};

TEST(EveryMechanism, GradientsAreTheComplexStepDerivatives) {
  std::map<std::string, double> worst;
  for (const std::string& spec : ConformanceSpecs()) {
    double& of = worst[NameOf(spec)];
    for (int sites = 1; sites <= 9; ++sites) of = std::max(of, GradientCheck(spec, sites, 3).Worst());
    for (const int sites : {1, 2, 5}) {
      for (const int64_t dim : {1, 16, 17}) of = std::max(of, GradientCheck(spec, sites, dim).Worst());
    }
  }
  for (const auto& [name, error] : worst) {
    std::printf("%-10s largest relative gradient error %.1e\n", name.c_str(), error);
  }
}

TEST(EveryMechanism, GradientsAtTheInitialValuesAreTheComplexStepDerivativesAndAliveOrExactlyZero) {
  for (const std::string spec :
       {"attnres:block=2", "hc:collapse=head", "hc:dynamic=false", "mhc:collapse=head", "mhc:form=paper",
        "mhc-lite:slots=3,collapse=head", "krom:collapse=head"}) {
    Toy<double> toy(spec, 5, 6);
    toy.Randomise(11);
    toy.SetInitial();
    const auto e = RandomNumbers(3 * 6, 1, 4), cotangent = RandomNumbers(3 * 6, 1, 5);
    Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kTrain);
    const auto all = Forward(toy, &walker, e);
    const auto g = Backward(toy, &walker, all, cotangent);
    size_t at = 0;
    for (const Parameter& p : toy.mechanism->Parameters()) {
      double largest = 0;
      for (int64_t i = 0; i < p.size(); ++i) largest = std::max(largest, std::abs(g.parameters[at++]));
      const bool one_source = p.name == "sites.0.query";
      const bool gain_of_zero_query = p.name.find("norm.") != std::string::npos;
      const bool scale_of_zero_projection = p.name.find("scale") != std::string::npos;
      if (one_source || gain_of_zero_query || scale_of_zero_projection) {
        EXPECT_EQ(largest, 0) << spec << " " << p.name;
      } else {
        EXPECT_GT(largest, 1e-7) << spec << " " << p.name;
      }
    }
  }
}

TEST(EveryMechanism, EveryUpdateReachesTheHeadAndNoEarlierSite) {
  for (const std::string& spec : ConformanceSpecs()) {
    constexpr int kSites = 6;
    Toy<double> toy(spec, kSites, 3);
    toy.Randomise(21);
    const auto e = RandomNumbers(2 * 3, 1, 22);
    for (const auto mode : {Walker<double>::Mode::kInfer, Walker<double>::Mode::kTrain}) {
      Walker<double> walker(*toy.mechanism, mode);
      const auto before = Forward(toy, &walker, e);
      for (int s = 0; s < kSites; ++s) {
        const auto after = Forward(toy, &walker, e, s, 0.5);
        for (size_t i = 0; i < e.size(); ++i) {
          EXPECT_GT(std::abs(after.back()[i] - before.back()[i]), 1e-9) << spec << " site " << s;
        }
        for (int r = 0; r <= s; ++r) EXPECT_EQ(after[static_cast<size_t>(r)], before[static_cast<size_t>(r)]);
      }
    }
  }
}

enum class Effect { kAlive, kIdle, kWeak };

// Parameters that cannot matter: the query of a single source; how slots are mixed where there is one, or
// where all are still equal (site 0), or where all are weighed alike after it (the last site). Of mhc's
// last mixing the columns' distance from 1 is seen.
Effect EffectOf(const std::string& spec, const std::string& name, int64_t i, int last_site, int slots,
                int64_t dim) {
  if (NameOf(spec) == "attnres") {
    const bool one_source = name.rfind("sites.0.", 0) == 0 && spec.find("sigmoid") == std::string::npos;
    return one_source ? Effect::kIdle : Effect::kAlive;
  }
  const bool manifold = NameOf(spec) == "mhc" || NameOf(spec) == "mhc-lite" || NameOf(spec) == "krom";
  if (!manifold || name.rfind("head.", 0) == 0) return Effect::kAlive;
  const bool of_keep = name.find("scale") != std::string::npos  ? i == 2
                       : name.find("bias") != std::string::npos ? i >= 2 * slots
                                                                : i >= 2 * slots * slots * dim;
  if (!of_keep) return Effect::kAlive;
  if (slots == 1 || name.rfind("sites.0.", 0) == 0) return Effect::kIdle;
  const bool last = name.rfind(fmt::format("sites.{}.", last_site), 0) == 0;
  if (!last || spec.find("collapse=head") != std::string::npos) return Effect::kAlive;
  return NameOf(spec) == "mhc" ? Effect::kWeak : Effect::kIdle;
}

TEST(EveryMechanism, EveryParameterChangesTheOutput) {
  for (const std::string& spec : ConformanceSpecs()) {
    Toy<double> toy(spec, 3, 3);
    toy.Randomise(31);
    const auto e = RandomNumbers(2 * 3, 1, 32);
    Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kInfer);
    const auto before = Forward(toy, &walker, e).back();
    size_t at = 0;
    for (const Parameter& p : toy.mechanism->Parameters()) {
      for (int64_t i = 0; i < p.size(); ++i, ++at) {
        const double kept = toy.parameters[at];
        toy.parameters[at] += 0.5;
        const auto after = Forward(toy, &walker, e).back();
        double change = 0;
        for (size_t n = 0; n < e.size(); ++n) change = std::max(change, std::abs(after[n] - before[n]));
        toy.parameters[at] = kept;
        const Effect effect = EffectOf(spec, p.name, i, 2, toy.mechanism->open_slots(), 3);
        if (effect == Effect::kAlive) {
          EXPECT_GT(change, 1e-9) << spec << " " << p.name << "[" << i << "]";
        }
        if (effect == Effect::kIdle) {
          EXPECT_LT(change, 2e-5) << spec << " " << p.name << "[" << i << "]";
        }
      }
    }
  }
}

// dp is accumulated: over the tokens of a pass, however many, and on top of what is there.
TEST(EveryMechanism, ParameterGradientsAddUp) {
  constexpr int64_t kTokens = 150, kDim = 3, kSites = 3;  // more tokens than any chunk
  std::vector<std::string> specs = MechanismNames();
  for (const char* more : {"attnres:query=input", "attnres:heads=3", "attnres:weights=static",
                           "mhc:collapse=head", "hc:dynamic=false", "review:form=convex"}) {
    specs.emplace_back(more);
  }
  for (const std::string& spec : specs) {
    Toy<double> toy(spec, kSites, kDim);
    toy.Randomise(80);
    const auto e = RandomNumbers(kTokens * kDim, 1, 81), cotangent = RandomNumbers(kTokens * kDim, 1, 82);
    Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kTrain);
    const auto x = Forward(toy, &walker, e);
    const Numbers<double> once = Backward(toy, &walker, x, cotangent).parameters;
    Numbers<double> twice = once, sum(once.size(), 0.0), dx(e.size()), dw(toy.weights.size());
    const double* du = walker.BeginBack(cotangent.data(), twice.data());
    for (int s = kSites - 1; s >= 0; --s) {
      toy.SublayerVjp(s, kTokens, x[static_cast<size_t>(s)].data(), du, dx.data(), dw.data());
      du = walker.Back(dx.data());
    }
    constexpr int64_t kHalf = kTokens / 2 * kDim;  // and of halves of the pass
    for (const int64_t begin : {int64_t{0}, kHalf}) {
      const Numbers<double> part(e.begin() + begin, e.begin() + begin + kHalf),
          of_part(cotangent.begin() + begin, cotangent.begin() + begin + kHalf);
      const auto all = Forward(toy, &walker, part);
      const auto g = Backward(toy, &walker, all, of_part).parameters;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += g[i];
    }
    double scale = 0;
    for (const double v : once) scale = std::max(scale, std::abs(v));
    for (size_t i = 0; i < once.size(); ++i) {
      EXPECT_NEAR(twice[i], 2 * once[i], 1e-12 * scale) << spec << " number " << i;
      EXPECT_NEAR(sum[i], once[i], 1e-12 * scale) << spec << " number " << i;
    }
  }
}

}  // namespace
}  // namespace strata
