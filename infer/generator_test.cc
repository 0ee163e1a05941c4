#include "infer/generator.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"

namespace strata {
namespace {

class GeneratorTest : public ::testing::Test {
 protected:
  GeneratorTest() {
    SetThreads(1);
    ModelConfig config;
    config.blocks = 2, config.dim = 16, config.heads = 2, config.vocab = 32, config.context = 8;
    config.residual = "attnres:block=1";
    config.Resolve();
    decoder_ = MakeDecoder(config, Precision::kF32);
    decoder_->parameters().Initialise(4);
    // Larger weights than at the start, so that the likeliest token changes from step to step.
    for (int64_t i = 0; i < decoder_->parameters().total(); ++i) decoder_->parameters().values()[i] *= 5;
    decoder_->WeightsChanged();
  }
  // The likeliest token after `text`, without any cache.
  int32_t Likeliest(const std::vector<int32_t>& text, int64_t vocab) {
    std::vector<float> logits(32);
    const auto cache = decoder_->NewCache(1);
    decoder_->Extend(cache.get(), text.data(), static_cast<int64_t>(text.size()), false, logits.data());
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.begin() + vocab) - logits.begin());
  }
  std::unique_ptr<Decoder> decoder_;
};

constexpr SamplerOptions kGreedy = {0.0, 0, 1.0, 1};

TEST_F(GeneratorTest, CachedEqualsUncachedAlsoWhenTheWindowSlides) {
  Generator generator(decoder_.get(), 32, kGreedy);
  std::vector<int32_t> text = {3, 1, 2}, window = text;
  const std::vector<int32_t> drawn = generator.Generate(text, 20, [](int32_t) { return true; });
  ASSERT_EQ(drawn.size(), 20u);
  for (const int32_t token : drawn) {
    ASSERT_EQ(token, Likeliest(window, 32));
    // A full window of 8 gives way to the last half of it, 4 tokens, the new one among them.
    const bool full = window.size() == 8;
    window.push_back(token);
    if (full) window.erase(window.begin(), window.end() - 4);
  }
  EXPECT_GT(std::count_if(drawn.begin(), drawn.end(), [&](int32_t t) { return t != drawn[0]; }), 0);
}

TEST_F(GeneratorTest, NeverDrawsPadding) {
  SamplerOptions hot = kGreedy;
  hot.temperature = 50;
  for (const int32_t token :
       Generator(decoder_.get(), 5, hot).Generate({1}, 200, [](int32_t) { return true; })) {
    ASSERT_LT(token, 5);
  }
}

TEST_F(GeneratorTest, StopsWhenToldAndTakesLongPrompts) {
  Generator generator(decoder_.get(), 32, kGreedy);
  EXPECT_EQ(generator.Generate({1}, 9, [](int32_t) { return false; }).size(), 1u);
  const std::vector<int32_t> prompt = {9, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(generator.Generate(prompt, 1, [](int32_t) { return true; })[0],
            Likeliest({1, 2, 3, 4, 5, 6, 7, 8}, 32));
  EXPECT_THROW(generator.Generate({}, 1, [](int32_t) { return true; }), Error);
}

}  // namespace
}  // namespace strata
