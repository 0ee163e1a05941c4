// The VJPs of the scalar truth against complex-step derivatives of its forward functions, with random
// cotangents; and, since a forward function that is wrong passes that, a few values known from elsewhere.
#include "ops/ref.h"

#include "ops/complex_step.h"
#include "ops/ref_nn.h"

namespace strata {
namespace {

using Lists = std::vector<Doubles>;
template <class T>
using Inputs = std::vector<std::vector<T>>;

constexpr Coef kKinds[] = {Coef::kOne, Coef::kToken, Coef::kChannel, Coef::kMatrix};

template <class V>
auto Pointers(std::vector<V>& arrays, int first, int count) {
  std::vector<decltype(arrays[0].data())> p;
  for (int k = 0; k < count; ++k) p.push_back(arrays[static_cast<size_t>(first + k)].data());
  return p;
}

template <class T>
std::vector<const T*> Const(const std::vector<T*>& p) {
  return {p.begin(), p.end()};
}

Doubles Joined(const Lists& lists, int first, int count) {
  Doubles joined;
  for (int k = first; k < first + count; ++k) {
    joined.insert(joined.end(), lists[static_cast<size_t>(k)].begin(), lists[static_cast<size_t>(k)].end());
  }
  return joined;
}

// inputs: read, slots.  Gradients are accumulated, so they start from numbers that are then taken off.
TEST(Ref, ReadVjpIsTheDerivative) {
  Random random(1);
  for (const Coef kind : {Coef::kOne, Coef::kToken, Coef::kChannel}) {
    const MixDims m{3, 5, 4};
    const int64_t size = m.tokens * m.dim;
    Lists inputs{RandomDoubles(m.tokens * CoefSize(kind, m.slots, m.dim), &random)};
    for (int k = 0; k < m.slots; ++k) inputs.push_back(RandomDoubles(size, &random));
    const Doubles dx = RandomDoubles(size, &random);
    const auto want = ComplexStep(
        [&](Inputs<Complex>& in) {
          std::vector<Complex> x(static_cast<size_t>(size));
          ref::Read(m, kind, in[0].data(), Const(Pointers(in, 1, m.slots)).data(), x.data());
          return x;
        },
        inputs, dx);
    Lists got(inputs);
    for (Doubles& g : got) g.assign(g.size(), 0.5);
    ref::ReadVjp(m, kind, inputs[0].data(), Const(Pointers(inputs, 1, m.slots)).data(), dx.data(),
                 Pointers(got, 1, m.slots).data(), got[0].data());
    for (Doubles& g : got) {
      for (double& value : g) value -= 0.5;
    }
    ExpectGradients(got, want);
  }
}

// inputs: keep, write, u, slots
void CheckWrite(const MixDims& m, Coef keep, Coef write, Random* random) {
  const int64_t size = m.tokens * m.dim;
  Lists inputs{RandomDoubles(m.tokens * CoefSize(keep, m.slots, m.dim), random),
               RandomDoubles(m.tokens * CoefSize(write, m.slots, m.dim), random),
               RandomDoubles(size, random)};
  Lists cotangents;
  for (int k = 0; k < m.slots; ++k) {
    inputs.push_back(RandomDoubles(size, random));
    cotangents.push_back(RandomDoubles(size, random));
  }
  const auto want = ComplexStep(
      [&](Inputs<Complex> in) {
        const auto s = Pointers(in, 3, m.slots);
        ref::Write(m, keep, in[0].data(), write, in[1].data(), Const(s).data(), in[2].data(), s.data());
        std::vector<Complex> all;
        for (int k = 0; k < m.slots; ++k)
          all.insert(all.end(), s[static_cast<size_t>(k)], s[static_cast<size_t>(k)] + size);
        return all;
      },
      inputs, Joined(cotangents, 0, m.slots));
  Lists got{Doubles(inputs[0].size()), Doubles(inputs[1].size()), Doubles(inputs[2].size())};
  got.insert(got.end(), cotangents.begin(), cotangents.end());
  ref::WriteVjp(m, keep, inputs[0].data(), write, inputs[1].data(),
                Const(Pointers(inputs, 3, m.slots)).data(), inputs[2].data(),
                Pointers(got, 3, m.slots).data(), got[2].data(), got[0].data(), got[1].data());
  ExpectGradients(got, want);
}

TEST(Ref, WriteVjpIsTheDerivative) {
  Random random(2);
  for (const Coef keep : kKinds) {
    for (const Coef write : {Coef::kOne, Coef::kToken, Coef::kChannel})
      CheckWrite({3, 4, 3}, keep, write, &random);
  }
}

// inputs: phi, slots.  outputs: dot, sq
TEST(Ref, SenseVjpIsTheDerivative) {
  Random random(3);
  const MixDims m{3, 5, 2};
  const int rows = 4;
  for (const int64_t stride : {int64_t{0}, rows * m.dim}) {
    Lists inputs{RandomDoubles((stride == 0 ? 1 : m.slots) * rows * m.dim, &random)};
    for (int k = 0; k < m.slots; ++k) inputs.push_back(RandomDoubles(m.tokens * m.dim, &random));
    const int64_t squares = m.tokens * m.slots, dots = squares * rows;
    const Doubles cotangent = RandomDoubles(dots + squares, &random);
    const auto want = ComplexStep(
        [&](Inputs<Complex>& in) {
          std::vector<Complex> y(static_cast<size_t>(dots + squares));
          ref::Sense(m, rows, in[0].data(), stride, m.dim, Const(Pointers(in, 1, m.slots)).data(), y.data(),
                     y.data() + dots);
          return y;
        },
        inputs, cotangent);
    Lists got(inputs);
    for (Doubles& g : got) g.assign(g.size(), 0);
    ref::SenseVjp(m, rows, inputs[0].data(), stride, m.dim, Const(Pointers(inputs, 1, m.slots)).data(),
                  cotangent.data(), cotangent.data() + dots, Pointers(got, 1, m.slots).data(), got[0].data());
    ExpectGradients(got, want);
  }
}

// keep is (to, from): a cyclic shift that sends slot k to slot k + 1, and no update.
TEST(Ref, WriteSendsFromColumnToRow) {
  const MixDims m{1, 1, 3};
  const double keep[9] = {0, 0, 1, 1, 0, 0, 0, 1, 0}, write[3] = {0, 0, 10}, u = 7;
  double s[3] = {1, 2, 3};
  double* slots[3] = {&s[0], &s[1], &s[2]};
  ref::Write(m, Coef::kMatrix, keep, Coef::kToken, write,
             Const(std::vector<double*>(slots, slots + 3)).data(), &u, slots);
  EXPECT_EQ(s[0], 3);
  EXPECT_EQ(s[1], 1);
  EXPECT_EQ(s[2], 2 + 70);
}

TEST(RefNn, RmsNormVjpIsTheDerivative) {
  Random random(4);
  const int64_t dim = 7;
  const Lists in{RandomDoubles(dim, &random), RandomDoubles(dim, &random)};
  const Doubles dy = RandomDoubles(dim, &random);
  const auto want = ComplexStep(
      [&](Inputs<Complex>& z) {
        std::vector<Complex> y(static_cast<size_t>(dim));
        ref::RmsNorm(dim, z[0].data(), z[1].data(), Complex(0.1), y.data());
        return y;
      },
      in, dy);
  Lists got{Doubles(7), Doubles(7)};
  ref::RmsNormVjp(dim, in[0].data(), in[1].data(), 0.1, dy.data(), got[0].data(), got[1].data());
  ExpectGradients(got, want);
}

TEST(RefNn, ElementwiseVjpsAreTheDerivatives) {
  Random random(5);
  for (int i = 0; i < 20; ++i) {
    const Lists in{{3 * random.Normal()}, {random.Normal()}};
    const Doubles dy{random.Normal()};
    const double a = in[0][0], b = in[1][0];
    using Z = Inputs<Complex>;
    using One = std::vector<Complex>;
    const Lists only_a{in[0]};
    ExpectGradients({{ref::SigmoidVjp(ref::Sigmoid(a), dy[0])}},
                    ComplexStep([](Z& z) { return One{ref::Sigmoid(z[0][0])}; }, only_a, dy));
    ExpectGradients({{ref::GeluVjp(a, dy[0])}},
                    ComplexStep([](Z& z) { return One{ref::Gelu(z[0][0])}; }, only_a, dy), 1e-11);
    const Lists square{{a * a}};
    ExpectGradients({{ref::RstdVjp(ref::Rstd(a * a, 9, 0.1), 9, dy[0])}},
                    ComplexStep([](Z& z) { return One{ref::Rstd(z[0][0], 9, Complex(0.1))}; }, square, dy));
    Lists got{{0}, {0}};
    ref::SwiGluVjp(a, b, dy[0], &got[0][0], &got[1][0]);
    ExpectGradients(got, ComplexStep([](Z& z) { return One{ref::SwiGlu(z[0][0], z[1][0])}; }, in, dy));
  }
}

TEST(RefNn, SoftmaxAndCrossEntropyVjpsAreTheDerivatives) {
  Random random(6);
  const int64_t n = 9;
  const Lists in{RandomDoubles(n, &random)};
  const Doubles dp = RandomDoubles(n, &random), dloss{1.7};
  Lists got{Doubles(n)};
  Doubles p(n);
  ref::Softmax(n, in[0].data(), p.data());
  ref::SoftmaxVjp(n, p.data(), dp.data(), got[0].data());
  ExpectGradients(got, ComplexStep(
                           [&](Inputs<Complex>& z) {
                             std::vector<Complex> y(n);
                             ref::Softmax(n, z[0].data(), y.data());
                             return y;
                           },
                           in, dp));
  ref::CrossEntropyVjp(n, in[0].data(), 2, dloss[0], got[0].data());
  ExpectGradients(
      got, ComplexStep(
               [&](Inputs<Complex>& z) { return std::vector<Complex>{ref::CrossEntropy(n, z[0].data(), 2)}; },
               in, dloss));
}

TEST(RefNn, AttentionVjpIsTheDerivative) {
  Random random(7);
  const int64_t length = 5, dim = 3, size = length * dim;
  const Lists in{RandomDoubles(size, &random), RandomDoubles(size, &random), RandomDoubles(size, &random)};
  const Doubles dout = RandomDoubles(size, &random);
  const auto want = ComplexStep(
      [&](Inputs<Complex>& z) {
        std::vector<Complex> o(static_cast<size_t>(size));
        ref::Attention(length, dim, Complex(0.6), z[0].data(), z[1].data(), z[2].data(), o.data());
        return o;
      },
      in, dout);
  Lists got(in);
  ref::AttentionVjp(length, dim, 0.6, in[0].data(), in[1].data(), in[2].data(), dout.data(), got[0].data(),
                    got[1].data(), got[2].data());
  ExpectGradients(got, want);
}

// The VJP of a rotation is the rotation back.
TEST(RefNn, RotateVjpIsTheRotationBack) {
  const double c = std::cos(0.7), s = std::sin(0.7);
  const Lists in{{1.3}, {-0.4}};
  const Doubles cotangent{0.9, 2.1};
  Lists got{{cotangent[0]}, {cotangent[1]}};
  ref::Rotate(c, -s, &got[0][0], &got[1][0]);
  ExpectGradients(got, ComplexStep(
                           [&](Inputs<Complex> z) {
                             ref::Rotate(Complex(c), Complex(s), &z[0][0], &z[1][0]);
                             return std::vector<Complex>{z[0][0], z[1][0]};
                           },
                           in, cotangent));
}

// Values from the formulas by hand, or with numbers for which they are simple.
TEST(RefNn, KnownValues) {
  EXPECT_NEAR(ref::Sigmoid(std::log(3.0)), 0.75, 1e-15);
  EXPECT_NEAR(ref::Gelu(1.0), 0.8411919906082768, 1e-15);
  EXPECT_NEAR(ref::SwiGlu(std::log(3.0), 2.0), 1.5 * std::log(3.0), 1e-15);
  EXPECT_DOUBLE_EQ(ref::Rstd(12.0, 4, 1.0), 0.5);
  const double x[2] = {3, 4}, gain[2] = {1, 2};
  double y[2];
  ref::RmsNorm(2, x, gain, 0.0, y);
  EXPECT_NEAR(y[0], 3 / std::sqrt(12.5), 1e-15);
  EXPECT_NEAR(y[1], 8 / std::sqrt(12.5), 1e-15);
  const double z[3] = {1000, 1000 + std::log(2.0), 1000};
  EXPECT_NEAR(ref::CrossEntropy(3, z, 1), std::log(2.0), 1e-12);
  double a = 1, b = 0;
  ref::Rotate(0.0, 1.0, &a, &b);
  EXPECT_EQ(a, 0);
  EXPECT_EQ(b, 1);
  // Equal keys: each query takes the mean of the values it may see.
  const double q[3] = {1, -2, 3}, k[3] = {0, 0, 0}, v[3] = {1, 3, 8};
  double o[3];
  ref::Attention(3, 1, 1.0, q, k, v, o);
  EXPECT_NEAR(o[0], 1, 1e-15);
  EXPECT_NEAR(o[1], 2, 1e-15);
  EXPECT_NEAR(o[2], 4, 1e-15);
}

}  // namespace
}  // namespace strata
