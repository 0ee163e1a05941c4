#include "model/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"

namespace strata {
namespace {

Parameter Tensor(const std::string& name, int64_t size, bool decays) {
  return {name, {size}, {Init::Kind::kNormal, 0.5, {}}, decays};
}

// Odd sizes, with and without decay in turn, so that tails and borders between passes are met.
void AddTensors(ParameterSet* set) {
  set->Add(Tensor("a", 37, true));
  set->Add(Tensor("b", 5, true));
  set->Add(Tensor("c", 70001, false));
  set->Add(Tensor("d", 1, true));
  set->Allocate();
  set->Initialise(7);
}

TEST(AdamW, FollowsTheEquationsInDouble) {
  ParameterSet set;
  AddTensors(&set);
  const AdamWOptions o{0.8, 0.9, 1e-6, 0.3};
  AdamW optimizer(set, o);
  const auto total = static_cast<size_t>(set.total());
  std::vector<double> value(set.values(), set.values() + total), m(total), v(total);
  Random random(3);
  const double lr = 0.02, scale = 0.25;
  for (int t = 1; t <= 3; ++t) {
    size_t i = 0;
    for (int p = 0; p < set.count(); ++p) {
      for (int64_t e = 0; e < set.spec(p).size(); ++e, ++i) {
        const auto raw = static_cast<float>(random.Normal());
        set.gradients()[i] = raw;
        const double g = scale * static_cast<double>(raw);
        m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
        v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
        const double m_hat = m[i] / (1 - std::pow(o.beta1, t)), v_hat = v[i] / (1 - std::pow(o.beta2, t));
        const double decay = set.spec(p).decays ? o.weight_decay : 0;
        value[i] -= lr * (m_hat / (std::sqrt(v_hat) + o.eps) + decay * value[i]);
      }
    }
    optimizer.Step(&set, lr, scale);
    for (i = 0; i < total; ++i) {
      ASSERT_NEAR(set.values()[i], value[i], 2e-6) << "step " << t << " element " << i;
      ASSERT_EQ(set.gradients()[i], 0.0f) << i;
    }
  }
  EXPECT_EQ(optimizer.step(), 3);
}

TEST(AdamW, FirstStepMovesByTheRate) {
  ParameterSet set;
  set.Add({"x", {3}, {Init::Kind::kConstant, 1.0, {}}, false});
  set.Allocate();
  set.Initialise(1);
  AdamW optimizer(set, {});
  set.gradients()[0] = 5;
  set.gradients()[1] = -1e-3f;
  optimizer.Step(&set, 0.1, 1.0);
  EXPECT_NEAR(set.values()[0], 0.9, 1e-6);
  EXPECT_NEAR(set.values()[1], 1.1, 1e-5);
  EXPECT_EQ(set.values()[2], 1.0f);
}

TEST(GradientNorm, IsEuclidean) {
  ParameterSet set;
  AddTensors(&set);
  set.gradients()[0] = 3;
  set.gradients()[set.total() - 1] = 4;
  EXPECT_DOUBLE_EQ(GradientNorm(set), 5.0);
}

TEST(LearningRate, WarmsUpLinearly) {
  EXPECT_DOUBLE_EQ(LearningRate("cosine", 1.0, 0, 100, 10, 0.1), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate("cosine", 1.0, 4, 100, 10, 0.1), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate("cosine", 1.0, 9, 100, 10, 0.1), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate("constant", 2.0, 0, 100, 0, 0.1), 2.0);
}

TEST(LearningRate, EndsWhereItShould) {
  EXPECT_NEAR(LearningRate("cosine", 2.0, 99, 100, 10, 0.1), 0.2, 1e-12);
  EXPECT_NEAR(LearningRate("wsd", 2.0, 99, 100, 10, 0.1), 0.2, 1e-12);
  EXPECT_DOUBLE_EQ(LearningRate("constant", 2.0, 99, 100, 10, 0.1), 2.0);
}

TEST(LearningRate, HasTheShapeOfItsName) {
  // Cosine: half way between the ends in the middle.
  EXPECT_NEAR(LearningRate("cosine", 1.0, 50, 101, 0, 0.0), 0.5, 1e-12);
  // wsd: constant to 80 steps, then linear: the middle of steps 80 to 99 is 89.5.
  EXPECT_DOUBLE_EQ(LearningRate("wsd", 1.0, 79, 100, 10, 0.0), 1.0);
  EXPECT_NEAR(LearningRate("wsd", 1.0, 89, 100, 10, 0.0) + LearningRate("wsd", 1.0, 90, 100, 10, 0.0), 1.0,
              1e-12);
}

TEST(ParameterSet, DrawsByNameNotByOrder) {
  ParameterSet one, two;
  one.Add(Tensor("x", 9, true));
  one.Add(Tensor("y", 9, true));
  two.Add(Tensor("other", 100, true));
  two.Add(Tensor("y", 9, true));
  for (ParameterSet* set : {&one, &two}) set->Allocate(), set->Initialise(11);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(one.value(1)[i], two.value(1)[i]);
  EXPECT_NE(one.value(0)[0], one.value(1)[0]);
  const float before = one.value(1)[0];
  one.Initialise(12);
  EXPECT_NE(one.value(1)[0], before);
}

TEST(ParameterSet, InitialisesEachKind) {
  ParameterSet set;
  set.Add({"constant", {2}, {Init::Kind::kConstant, -2.5, {}}, false});
  set.Add({"values", {2, 2}, {Init::Kind::kValues, 0, {1, 2, 3, 4}}, false});
  set.Add({"normal", {20000}, {Init::Kind::kNormal, 0.02, {}}, false});
  set.Allocate();
  set.Initialise(5);
  EXPECT_EQ(set.value(0)[1], -2.5f);
  EXPECT_EQ(set.value(1)[3], 4.0f);
  double sum = 0, squares = 0;
  for (int i = 0; i < 20000; ++i) {
    sum += static_cast<double>(set.value(2)[i]);
    squares += std::pow(static_cast<double>(set.value(2)[i]), 2);
  }
  EXPECT_NEAR(sum / 20000, 0, 0.0006);
  EXPECT_NEAR(std::sqrt(squares / 20000), 0.02, 0.0005);
}

}  // namespace
}  // namespace strata
