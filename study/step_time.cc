#include "study/step_time.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/random.h"
#include "model/memory.h"
#include "model/optimizer.h"

namespace strata {
namespace {

struct Arm {
  ModelConfig config;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<AdamW> optimizer;
  std::vector<double> seconds;
};

Arm MakeArm(ModelConfig config, const std::string& residual, Precision precision) {
  config.residual = residual;
  config.Resolve();
  Arm arm{config, MakeDecoder(config, precision), nullptr, {}};
  arm.decoder->parameters().Initialise(1);
  arm.decoder->WeightsChanged();
  arm.optimizer = std::make_unique<AdamW>(arm.decoder->parameters(), AdamWOptions{});
  return arm;
}

// Seconds of one step.
double Step(Arm* arm, const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets,
            int64_t batch) {
  const auto begin = std::chrono::steady_clock::now();
  const int64_t length = arm->config.context;
  arm->decoder->TrainStep(tokens.data(), targets.data(), batch, length,
                          1.0 / static_cast<double>(batch * length));
  const double norm = GradientNorm(arm->decoder->parameters());
  arm->optimizer->Step(&arm->decoder->parameters(), 1e-4, std::min(1.0, 1.0 / (norm + 1e-12)));
  arm->decoder->WeightsChanged();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<int32_t> RandomTokens(int64_t count, int64_t vocab, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.Below(static_cast<uint64_t>(vocab)));
  return tokens;
}

}  // namespace

std::vector<StepTime> TimeSteps(const ModelConfig& config, const std::vector<std::string>& residuals,
                                int64_t batch, Precision precision, int rounds,
                                const std::function<void(int)>& on_round) {
  std::vector<Arm> arms;
  arms.push_back(MakeArm(config, "standard", precision));
  for (const std::string& residual : residuals) {
    if (residual != "standard") arms.push_back(MakeArm(config, residual, precision));
  }
  const auto tokens = RandomTokens(batch * config.context, config.vocab, 1);
  const auto targets = RandomTokens(batch * config.context, config.vocab, 2);
  for (int round = -1; round < rounds; ++round) {
    for (Arm& arm : arms) {
      const double seconds = Step(&arm, tokens, targets, batch);
      if (round >= 0) arm.seconds.push_back(seconds);
    }
    if (on_round) on_round(round + 1);
  }
  std::vector<StepTime> times;
  for (const std::string& residual : residuals) {
    const auto arm =
        std::find_if(arms.begin(), arms.end(), [&](const Arm& a) { return a.config.residual == residual; });
    std::vector<double> ratios;
    for (size_t r = 0; r < arm->seconds.size(); ++r) ratios.push_back(arm->seconds[r] / arms[0].seconds[r]);
    const double seconds = Median(arm->seconds);
    times.push_back({residual, seconds, static_cast<double>(batch * config.context) / seconds, Median(ratios),
                     EstimateMemory(arm->config, batch, precision).total()});
  }
  return times;
}

}  // namespace strata
