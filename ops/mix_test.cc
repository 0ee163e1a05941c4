// The law's float kernels against the scalar truth in double, on every target that this CPU runs: odd sizes,
// misaligned pointers, canaries around every array. And equal bits: in place, split over calls, on more
// threads.
#include "ops/mix.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "ops/mix_check.h"

namespace strata {
namespace {

constexpr int64_t kDims[] = {1, 3, 7, 16, 17, 31, 64, 65, 256, 1000};
constexpr int kSlots[] = {1, 2, 3, 4, 5, 8, 9};
constexpr int64_t kTokens[] = {0, 1, 3, 17, 33};
constexpr Coef kPlain[] = {Coef::kOne, Coef::kToken, Coef::kChannel};
constexpr Coef kKeeps[] = {Coef::kOne, Coef::kToken, Coef::kChannel, Coef::kMatrix};

class Mix : public ::testing::Test {
 protected:
  void SetUp() override { threads_ = Threads(); }
  void TearDown() override {
    SetThreads(threads_);
    UseTarget(0);
  }

 private:
  int threads_ = 1;
};

// Calls check(dim, slots, tokens) for all pairs of dim and slots with one of the token counts; the next call
// takes the next count for each pair.
template <class F>
void OverSizes(F&& check) {
  static size_t turn = 0;
  size_t next = turn++;
  for (const int64_t dim : kDims) {
    for (const int n : kSlots) {
      const int64_t tokens = kTokens[next++ % std::size(kTokens)];
      check(dim, n, dim * n * tokens > 100000 ? 3 : tokens);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST_F(Mix, Read) {
  for (const Coef kind : kPlain) {
    OverSizes([&](int64_t dim, int n, int64_t tokens) { Check(ReadOp{kind, dim, n}, tokens); });
  }
}

TEST_F(Mix, ReadVjp) {
  for (const Coef kind : kPlain) {
    OverSizes([&](int64_t dim, int n, int64_t tokens) { Check(ReadVjpOp{kind, dim, n}, tokens); });
  }
}

TEST_F(Mix, Write) {
  for (const Coef keep : kKeeps) {
    for (const Coef write : kPlain) {
      OverSizes([&](int64_t dim, int n, int64_t tokens) {
        Check(WriteOp{keep, write, dim, n, false}, tokens);
      });
    }
  }
}

TEST_F(Mix, WriteInPlaceHasTheSameBits) {
  for (const int64_t target : Targets()) {
    UseTarget(target);
    for (const Coef keep : kKeeps) {
      for (const Coef write : kPlain) {
        OverSizes([&](int64_t dim, int n, int64_t tokens) {
          if (dim > 100) return;  // more vectors of the same kind
          const WriteOp op{keep, write, dim, n, false}, in_place{keep, write, dim, n, true};
          Values inputs = RandomInputs(op, tokens);
          auto got = Apply<float>(op, tokens, inputs);
          inputs.resize(static_cast<size_t>(3 + n));
          got.erase(got.begin() + 3, got.begin() + 3 + n);  // `next` now stands where the slots stood
          ASSERT_TRUE(SameBits(got, Apply<float>(in_place, tokens, inputs)));
        });
      }
    }
  }
}

TEST_F(Mix, WriteVjp) {
  for (const Coef keep : kKeeps) {
    for (const Coef write : kPlain) {
      OverSizes([&](int64_t dim, int n, int64_t tokens) { Check(WriteVjpOp{keep, write, dim, n}, tokens); });
    }
  }
}

TEST_F(Mix, Sense) {
  for (const int m : {1, 3, 4, 6, 11}) {
    for (const bool shared : {false, true}) {
      OverSizes([&](int64_t dim, int n, int64_t tokens) { Check(SenseOp{dim, n, m, shared}, tokens); });
    }
  }
}

TEST_F(Mix, SenseVjp) {
  for (const int m : {1, 3, 4, 6, 11}) {
    for (const bool shared : {false, true}) {
      OverSizes([&](int64_t dim, int n, int64_t tokens) { Check(SenseVjpOp{{dim, n, m, shared}}, tokens); });
    }
  }
}

// A gradient of phi that spans several blocks of tokens, chunks of channels and threads.
TEST_F(Mix, SenseVjpOverManyTokens) {
  for (const bool shared : {false, true}) Check(SenseVjpOp{{200, 3, 5, shared}}, 150);
}

TEST_F(Mix, NullOutputsAreLeftOut) {
  const MixDims dims{2, 3, 1};
  const std::vector<float> phi(3, 1.0f), s{1, 2, 3, 4, 5, 6}, ddot{10, 20};
  std::vector<float> dot(2), ds(6);
  const float* slots[] = {s.data()};
  float* dslots[] = {ds.data()};
  Sense<float>(dims, 1, phi.data(), 0, 3, slots, dot.data(), nullptr);
  EXPECT_EQ(dot, (std::vector<float>{6, 15}));
  SenseVjp<float>(dims, 1, phi.data(), 0, 3, slots, ddot.data(), nullptr, dslots, nullptr);
  EXPECT_EQ(ds, (std::vector<float>{10, 10, 10, 20, 20, 20}));
}

TEST_F(Mix, ReadOfOneSlotMayBeInPlace) {
  std::vector<float> x{1, 2, 3};
  const float* slots[] = {x.data()};
  Read<float>({1, 3, 1}, Coef::kOne, nullptr, slots, x.data());
  EXPECT_EQ(x, (std::vector<float>{1, 2, 3}));
}

// Rows of phi more than 2^31 elements apart, in memory that is reserved and hardly touched.
TEST_F(Mix, OffsetsHave64Bits) {
  constexpr int64_t kDim = 5, kStride = (int64_t{1} << 31) + 16, kRows = 3;
  constexpr size_t kBytes = 2 * kRows * static_cast<size_t>(kStride) * sizeof(float);
  const auto reserve = [] {
    return mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  };
  void *first = reserve(), *second = reserve();
  if (first == MAP_FAILED || second == MAP_FAILED) GTEST_SKIP() << "no address space";
  float *phi = static_cast<float*>(first), *dphi = static_cast<float*>(second);
  std::vector<float> s0(kDim, 1.0f), s1(kDim, 10.0f), ds0(kDim), ds1(kDim), dot(6), ddot{1, 2, 3, 4, 5, 6};
  for (int64_t row = 0; row < 2 * kRows; ++row) {
    std::fill_n(phi + row * kStride, kDim, static_cast<float>(row + 1));
  }
  const float* slots[] = {s0.data(), s1.data()};
  float* dslots[] = {ds0.data(), ds1.data()};
  const MixDims dims{1, kDim, 2};
  Sense<float>(dims, kRows, phi, kRows * kStride, kStride, slots, dot.data(), nullptr);
  EXPECT_EQ(dot, (std::vector<float>{5, 10, 15, 200, 250, 300}));
  SenseVjp<float>(dims, kRows, phi, kRows * kStride, kStride, slots, ddot.data(), nullptr, dslots, dphi);
  EXPECT_EQ(ds0, std::vector<float>(kDim, 1 + 4 + 9));
  EXPECT_EQ(ds1, std::vector<float>(kDim, 16 + 25 + 36));
  for (int64_t row = 0; row < 2 * kRows; ++row) {
    EXPECT_EQ(dphi[row * kStride + kDim - 1], static_cast<float>(row + 1) * (row < kRows ? 1.0f : 10.0f));
  }
  munmap(first, kBytes);
  munmap(second, kBytes);
}

}  // namespace
}  // namespace strata
