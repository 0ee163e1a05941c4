#include "model/optimizer.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "ops/adamw.h"
#include "ops/nn.h"

namespace strata {

AdamW::AdamW(const ParameterSet& parameters, const AdamWOptions& options)
    : options_(options), first_(parameters.total()), second_(parameters.total()) {}

void AdamW::Step(ParameterSet* parameters, double lr, double gradient_scale) {
  ++step_;
  const auto t = static_cast<double>(step_);
  AdamWNumbers numbers;
  numbers.beta1 = static_cast<float>(options_.beta1);
  numbers.beta2 = static_cast<float>(options_.beta2);
  numbers.eps = static_cast<float>(options_.eps);
  numbers.gradient_scale = static_cast<float>(gradient_scale);
  numbers.rate = static_cast<float>(lr / (1 - std::pow(options_.beta1, t)));
  numbers.root = static_cast<float>(1 / std::sqrt(1 - std::pow(options_.beta2, t)));
  // Neighbouring tensors that share a decay are updated together: few, long passes.
  const int count = parameters->count();
  for (int i = 0; i < count;) {
    const bool decays = parameters->spec(i).decays;
    const int64_t begin = parameters->offset(i);
    while (i < count && parameters->spec(i).decays == decays) ++i;
    const int64_t end = i < count ? parameters->offset(i) : parameters->total();
    numbers.shrink = decays ? static_cast<float>(lr * options_.weight_decay) : 0.0f;
    AdamWUpdate(end - begin, numbers, parameters->values() + begin, parameters->gradients() + begin,
                first_.data() + begin, second_.data() + begin);
  }
}

double GradientNorm(const ParameterSet& parameters) {
  return std::sqrt(SumOfSquares(parameters.total(), parameters.gradients()));
}

double LearningRate(const std::string& schedule, double peak, int64_t step, int64_t steps, int64_t warmup,
                    double final_fraction) {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (schedule == "constant") return peak;
  const int64_t begin = schedule == "wsd" ? std::max(warmup, steps - steps / 5) : warmup;
  if (step < begin) return peak;
  // The last step, steps - 1, has the final rate.
  const double length = static_cast<double>(std::max<int64_t>(1, steps - 1 - begin));
  const double done = std::min(1.0, static_cast<double>(step - begin) / length);
  const double left = schedule == "wsd" ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return peak * (final_fraction + (1 - final_fraction) * left);
}

}  // namespace strata
