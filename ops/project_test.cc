#include "ops/project.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"

namespace strata {
namespace {

template <class T>
std::vector<T> Random01(int64_t size, uint64_t seed) {
  Random random(seed);
  std::vector<T> v(static_cast<size_t>(size));
  for (T& x : v) x = static_cast<T>(static_cast<float>(random.Normal()));
  return v;
}

template <class T>
struct Result {
  std::vector<T> y, dx, dw;
};

template <class T>
Result<T> Products(int64_t rows, int64_t in, int64_t out, int64_t ldw, int64_t split) {
  const auto w = Random01<T>(out * ldw, 1), x = Random01<T>(rows * in, 2), dy = Random01<T>(rows * out, 3);
  Result<T> r{std::vector<T>(static_cast<size_t>(rows * out)), std::vector<T>(static_cast<size_t>(rows * in)),
              std::vector<T>(static_cast<size_t>(out * ldw), T(1))};
  for (int64_t at = 0; at < rows; at += split) {
    const int64_t n = std::min(split, rows - at);
    Project(n, in, out, w.data(), ldw, x.data() + at * in, r.y.data() + at * out);
    ProjectBack(n, in, out, w.data(), ldw, dy.data() + at * out, r.dx.data() + at * in);
  }
  ProjectWeights(rows, in, out, dy.data(), x.data(), r.dw.data(), ldw);
  return r;
}

void ExpectNear(const std::vector<float>& a, const std::vector<double>& b, double scale) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(static_cast<double>(a[i]), b[i], 1e-6 * scale) << i;
}

TEST(Project, FloatIsTheScalarTruthForOddShapes) {
  for (const int64_t in : {1, 3, 17, 130}) {
    for (const int64_t out : {1, 2, 16, 70, 150}) {
      const auto f = Products<float>(150, in, out, in + 2, kProjectRows);
      const auto d = Products<double>(150, in, out, in + 2, kProjectRows);
      ExpectNear(f.y, d.y, static_cast<double>(in) + 4);
      ExpectNear(f.dx, d.dx, static_cast<double>(out) + 4);
      ExpectNear(f.dw, d.dw, 150);
    }
  }
}

TEST(Project, RowsDependNeitherOnOtherRowsNorOnThreads) {
  for (const int64_t dim : {17, 64, 192}) {
    SetThreads(1);
    const auto all = Products<float>(150, dim, dim, dim, kProjectRows);
    for (const int64_t split : {1, 5, 63}) {
      const auto part = Products<float>(150, dim, dim, dim, split);
      EXPECT_EQ(all.y, part.y) << dim << " by " << split;
      EXPECT_EQ(all.dx, part.dx) << dim << " by " << split;
    }
    SetThreads(2);
    const auto two = Products<float>(150, dim, dim, dim, kProjectRows);
    EXPECT_EQ(all.y, two.y);
    EXPECT_EQ(all.dx, two.dx);
    EXPECT_EQ(all.dw, two.dw);
  }
  SetThreads(1);
}

}  // namespace
}  // namespace strata
