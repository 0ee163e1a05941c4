#ifndef STRATA_OPS_MIX_CHECK_H_
#define STRATA_OPS_MIX_CHECK_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"
#include "hwy/highway.h"
#include "ops/mix.h"

// For tests: the ops of the law as objects with a list of arguments, and what must hold for each of them.
namespace strata {

// One argument of an op: how many numbers per token, or in all where it is not per token.
struct Argument {
  int64_t size;
  bool per_token = true;
};

// An op with its arguments in a fixed order; Call runs it on `tokens` tokens.
struct ReadOp {
  Coef kind;
  int64_t dim;
  int n;
  std::vector<Argument> Arguments() const {  // read, x, slots
    std::vector<Argument> a{{CoefSize(kind, n, dim)}, {dim}};
    a.insert(a.end(), static_cast<size_t>(n), {dim});
    return a;
  }
  template <class T>
  void Call(int64_t tokens, const std::vector<T*>& a) const {
    Read<T>({tokens, dim, n}, kind, a[0], a.data() + 2, a[1]);
  }
};

struct ReadVjpOp {
  Coef kind;
  int64_t dim;
  int n;
  std::vector<Argument> Arguments() const {  // read, dread, dx, slots, dslots
    std::vector<Argument> a{{CoefSize(kind, n, dim)}, {CoefSize(kind, n, dim)}, {dim}};
    a.insert(a.end(), static_cast<size_t>(2 * n), {dim});
    return a;
  }
  template <class T>
  void Call(int64_t tokens, const std::vector<T*>& a) const {
    ReadVjp<T>({tokens, dim, n}, kind, a[0], a.data() + 3, a[2], a.data() + 3 + n, a[1]);
  }
};

struct WriteOp {
  Coef keep, write;
  int64_t dim;
  int n;
  bool in_place;
  std::vector<Argument> Arguments() const {  // keep, write, u, slots, and next unless in place
    std::vector<Argument> a{{CoefSize(keep, n, dim)}, {CoefSize(write, n, dim)}, {dim}};
    a.insert(a.end(), static_cast<size_t>(in_place ? n : 2 * n), {dim});
    return a;
  }
  template <class T>
  void Call(int64_t tokens, const std::vector<T*>& a) const {
    Write<T>({tokens, dim, n}, keep, a[0], write, a[1], a.data() + 3, a[2],
             a.data() + 3 + (in_place ? 0 : n));
  }
};

struct WriteVjpOp {
  Coef keep, write;
  int64_t dim;
  int n;
  std::vector<Argument> Arguments() const {  // keep, write, dkeep, dwrite, u, du, slots, dslots
    const int64_t k = CoefSize(keep, n, dim), w = CoefSize(write, n, dim);
    std::vector<Argument> a{{k}, {w}, {k}, {w}, {dim}, {dim}};
    a.insert(a.end(), static_cast<size_t>(2 * n), {dim});
    return a;
  }
  template <class T>
  void Call(int64_t tokens, const std::vector<T*>& a) const {
    WriteVjp<T>({tokens, dim, n}, keep, a[0], write, a[1], a.data() + 6, a[4], a.data() + 6 + n, a[5], a[2],
                a[3]);
  }
};

// phi is a slice of a wider matrix: its rows are dim + 2 apart. One phi for all slots where `shared`.
struct SenseOp {
  int64_t dim;
  int n, m;
  bool shared;
  int64_t RowStride() const { return dim + 2; }
  int64_t SlotStride() const { return shared ? 0 : m * RowStride(); }
  Argument Phi() const { return {(shared ? 1 : n) * m * RowStride(), false}; }
  std::vector<Argument> Arguments() const {  // phi, dot, sq, slots
    std::vector<Argument> a{Phi(), {int64_t{n} * m}, {n}};
    a.insert(a.end(), static_cast<size_t>(n), {dim});
    return a;
  }
  template <class T>
  void Call(int64_t tokens, const std::vector<T*>& a) const {
    Sense<T>({tokens, dim, n}, m, a[0], SlotStride(), RowStride(), a.data() + 3, a[1], a[2]);
  }
};

struct SenseVjpOp : SenseOp {
  std::vector<Argument> Arguments() const {  // phi, dphi, ddot, dsq, slots, dslots
    std::vector<Argument> a{Phi(), Phi(), {int64_t{n} * m}, {n}};
    a.insert(a.end(), static_cast<size_t>(2 * n), {dim});
    return a;
  }
  template <class T>
  void Call(int64_t tokens, const std::vector<T*>& a) const {
    SenseVjp<T>({tokens, dim, n}, m, a[0], SlotStride(), RowStride(), a.data() + 4, a[2], a[3],
                a.data() + 4 + n, a[1]);
  }
};

// An array with NaN on both sides that starts `offset` elements off a vector's border.
template <class T>
class Guarded {
 public:
  Guarded(const std::vector<double>& values, int64_t offset) : begin_(kGuard + offset), size_(values.size()) {
    memory_.assign(static_cast<size_t>(2 * kGuard + offset) + size_, static_cast<T>(NAN));
    for (size_t i = 0; i < size_; ++i) data()[i] = static_cast<T>(values[i]);
  }
  T* data() { return memory_.data() + begin_; }
  std::vector<T> Values() { return {data(), data() + size_}; }
  bool Intact() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const bool inside = i >= static_cast<size_t>(begin_) && i < static_cast<size_t>(begin_) + size_;
      if (!inside && !std::isnan(memory_[i])) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 16;
  std::vector<T> memory_;
  int64_t begin_;
  size_t size_;
};

using Values = std::vector<std::vector<double>>;

template <class Op>
Values RandomInputs(const Op& op, int64_t tokens) {
  Random random(7);
  Values values;
  for (const Argument& a : op.Arguments()) {
    values.emplace_back(static_cast<size_t>(a.per_token ? a.size * tokens : a.size));
    for (double& x : values.back()) x = static_cast<float>(random.Normal());
  }
  return values;
}

// All arguments after the op has run on copies of `inputs`, in two calls cut at token `cut`.
template <class T, class Op>
std::vector<std::vector<T>> Apply(const Op& op, int64_t tokens, const Values& inputs, int64_t cut = 0,
                                  int64_t offset = 0) {
  std::vector<Guarded<T>> arrays;
  for (const auto& input : inputs) arrays.emplace_back(input, offset);
  std::vector<T*> first, second;
  const std::vector<Argument> arguments = op.Arguments();
  for (size_t i = 0; i < arrays.size(); ++i) {
    first.push_back(arrays[i].data());
    second.push_back(arrays[i].data() + (arguments[i].per_token ? arguments[i].size * cut : 0));
  }
  if (cut > 0) op.Call(cut, first);
  op.Call(tokens - cut, second);
  std::vector<std::vector<T>> results;
  for (auto& array : arrays) {
    EXPECT_TRUE(array.Intact()) << "written outside argument " << results.size();
    results.push_back(array.Values());
  }
  return results;
}

inline ::testing::AssertionResult SameBits(const std::vector<std::vector<float>>& a,
                                           const std::vector<std::vector<float>>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      if (std::bit_cast<uint32_t>(a[i][j]) != std::bit_cast<uint32_t>(b[i][j])) {
        return ::testing::AssertionFailure()
               << "argument " << i << " at " << j << ": " << a[i][j] << " and " << b[i][j];
      }
    }
  }
  return ::testing::AssertionSuccess();
}

// Every op is a sum of products, so the same op on absolute values gives sum |terms|: the measure of what
// rounding may do.
inline ::testing::AssertionResult Near(const std::vector<std::vector<float>>& got, const Values& want,
                                       const Values& terms, double roundings) {
  for (size_t i = 0; i < got.size(); ++i) {
    for (size_t j = 0; j < got[i].size(); ++j) {
      const double error = std::abs(got[i][j] - want[i][j]), bound = roundings * FLT_EPSILON * terms[i][j];
      if (!(error <= bound)) {
        return ::testing::AssertionFailure() << "argument " << i << " at " << j << ": expected " << want[i][j]
                                             << " within " << bound << ", got " << got[i][j];
      }
    }
  }
  return ::testing::AssertionSuccess();
}

inline std::vector<int64_t> Targets() {
  hwy::SetSupportedTargetsForTest(0);
  return hwy::SupportedAndGeneratedTargets();
}

inline void UseTarget(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// The result of the op on each target equals the truth; cut in two, misaligned or on two threads it has the
// same bits.
template <class Op>
void Check(const Op& op, int64_t tokens) {
  const Values inputs = RandomInputs(op, tokens);
  Values absolute = inputs;
  for (auto& v : absolute) {
    for (double& x : v) x = std::abs(x);
  }
  const Values want = Apply<double>(op, tokens, inputs), terms = Apply<double>(op, tokens, absolute);
  for (const int64_t target : Targets()) {
    UseTarget(target);
    SCOPED_TRACE(std::string(hwy::TargetName(target)) + " dim " + std::to_string(op.dim) + " slots " +
                 std::to_string(op.n) + " tokens " + std::to_string(tokens));
    SetThreads(1);
    const auto got = Apply<float>(op, tokens, inputs);
    ASSERT_TRUE(Near(got, want, terms, 3 + std::sqrt(static_cast<double>(op.dim)) / 2));
    ASSERT_TRUE(SameBits(got, Apply<float>(op, tokens, inputs, tokens / 3, 3))) << "in two calls, misaligned";
    if (tokens < 33) continue;
    SetThreads(2);
    ASSERT_TRUE(SameBits(got, Apply<float>(op, tokens, inputs))) << "on two threads";
  }
}

}  // namespace strata

#endif  // STRATA_OPS_MIX_CHECK_H_
