#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"
#include "model/decoder.h"
#include "model/optimizer.h"
#include "residual/mechanism.h"

namespace strata {
namespace {

constexpr int64_t kPeriod = 3, kLength = 16, kBatch = 16, kVocab = 8;

// Rows that repeat three random symbols: to predict one, a model must look back three positions. The targets
// of the first period cannot be known and are not counted.
struct Toy {
  std::vector<int32_t> tokens, targets;
  int64_t counted = 0;
  explicit Toy(Random* random) {
    for (int64_t b = 0; b < kBatch; ++b) {
      int32_t pattern[kPeriod];
      for (int32_t& symbol : pattern) symbol = static_cast<int32_t>(random->Below(kVocab));
      for (int64_t i = 0; i < kLength; ++i) {
        const bool known = i + 1 >= kPeriod;
        tokens.push_back(pattern[i % kPeriod]);
        targets.push_back(known ? pattern[(i + 1) % kPeriod] : -1);
        counted += known;
      }
    }
  }
};

ModelConfig Model(const std::string& residual) {
  ModelConfig model;
  model.residual = residual;
  model.blocks = 2;
  model.dim = 32;
  model.heads = 2;
  model.vocab = kVocab;
  model.context = kLength;
  model.Resolve();
  return model;
}

// Every connection as it comes, and the forms that differ most.
std::vector<std::string> Specs() {
  std::vector<std::string> specs = MechanismNames();
  for (const char* more : {"attnres:block=1", "attnres:weights=sigmoid", "attnres:query=input",
                           "mhc:form=paper", "hc:dynamic=false", "review:form=convex", "gated:head=mean"}) {
    specs.emplace_back(more);
  }
  return specs;
}

class Learning : public ::testing::TestWithParam<std::string> {};

TEST_P(Learning, PredictsPeriodicRowsWithinItsSteps) {
  constexpr int64_t kSteps = 500;
  SetThreads(1);  // the model is too small for more
  const auto decoder = MakeDecoder(Model(GetParam()), Precision::kF32);
  decoder->parameters().Initialise(1);
  decoder->WeightsChanged();
  AdamW optimizer(decoder->parameters(), {});
  Random random(2);
  double first = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const Toy toy(&random);
    const double scale = 1.0 / static_cast<double>(toy.counted);
    const double loss =
        scale * decoder->TrainStep(toy.tokens.data(), toy.targets.data(), kBatch, kLength, scale);
    if (step == 0) first = loss;
    const double norm = GradientNorm(decoder->parameters());
    const double lr = LearningRate("cosine", 0.02, step, kSteps, 10, 0.1);
    optimizer.Step(&decoder->parameters(), lr, norm > 1 ? 1 / norm : 1.0);
    decoder->WeightsChanged();
  }
  // New rows, so nothing is known by heart.
  Random fresh(99);
  const Toy toy(&fresh);
  const double loss = decoder->Evaluate(toy.tokens.data(), toy.targets.data(), kBatch, kLength) /
                      static_cast<double>(toy.counted);
  EXPECT_NEAR(first, std::log(kVocab), 0.25);
  EXPECT_LT(loss, 0.1) << "from " << first;
}

INSTANTIATE_TEST_SUITE_P(Connections, Learning, ::testing::ValuesIn(Specs()));

}  // namespace
}  // namespace strata
