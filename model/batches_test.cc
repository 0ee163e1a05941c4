#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/testing.h"
#include "model/data.h"

namespace strata {
namespace {

using testing::HasSubstr;

std::vector<int32_t> Counting(int64_t size) {
  std::vector<int32_t> tokens(static_cast<size_t>(size));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

// The rows of `rows` windows drawn `batch` at a time; checks that targets are the tokens that follow.
std::vector<std::vector<int32_t>> Draw(Batches* batches, int64_t rows, int64_t batch, int64_t context) {
  std::vector<std::vector<int32_t>> drawn;
  std::vector<int32_t> tokens(static_cast<size_t>(batch * context), -1), targets = tokens;
  for (int64_t row = 0; row < rows; row += batch) {
    batches->Next(batch, tokens.data(), targets.data());
    for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(targets[i], tokens[i] + 1);
    for (int64_t b = 0; b < batch; ++b) {
      const auto begin = tokens.begin() + b * context;
      drawn.emplace_back(begin, begin + context);
      EXPECT_EQ(drawn.back().back() - drawn.back().front(), context - 1);
    }
  }
  return drawn;
}

TEST(Batches, EveryWindowOncePerEpoch) {
  for (const int64_t size : {9, 10, 16, 17, 100, 1003}) {
    const int64_t context = 8;
    const std::vector<int32_t> tokens = Counting(size);
    Batches batches(tokens, context, 3);
    const int64_t windows = batches.windows_per_epoch();
    ASSERT_GE(windows, 1);
    ASSERT_GE(windows * context + context, size - context);  // at most one window's worth is left out
    for (int epoch = 0; epoch < 4; ++epoch) {
      std::set<int32_t> starts;
      for (const auto& row : Draw(&batches, windows, 1, context)) starts.insert(row[0]);
      // Distinct and `context` apart, so side by side from the epoch's offset on.
      ASSERT_EQ(std::ssize(starts), windows) << "size " << size;
      EXPECT_EQ(*starts.rbegin() - *starts.begin(), (windows - 1) * context);
      for (const int32_t start : starts) EXPECT_EQ((start - *starts.begin()) % context, 0);
      EXPECT_LT(*starts.begin(), context);
      EXPECT_LE(*starts.rbegin() + context + 1, size);
    }
    EXPECT_EQ(batches.position().epoch, 3);
  }
}

TEST(Batches, OrderAndOffsetDependOnSeedAndEpoch) {
  const std::vector<int32_t> tokens = Counting(2000);
  Batches a(tokens, 16, 1), same(tokens, 16, 1), other(tokens, 16, 2);
  const int64_t windows = a.windows_per_epoch();
  const auto first = Draw(&a, windows, 1, 16), second = Draw(&a, windows, 1, 16);
  EXPECT_EQ(Draw(&same, windows, 1, 16), first);
  EXPECT_NE(Draw(&other, windows, 1, 16), first);
  EXPECT_NE(second, first);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  std::set<int32_t> offsets;
  Batches many(tokens, 16, 1);
  for (int epoch = 0; epoch < 40; ++epoch) {
    const auto rows = Draw(&many, windows, 1, 16);
    offsets.insert((*std::min_element(rows.begin(), rows.end()))[0]);
  }
  EXPECT_GT(offsets.size(), 10u);  // of 16
}

TEST(Batches, BatchSizeDoesNotChangeTheOrder) {
  const std::vector<int32_t> tokens = Counting(500);
  Batches one(tokens, 10, 5), seven(tokens, 10, 5), all(tokens, 10, 5);
  const auto rows = Draw(&one, 210, 1, 10);
  EXPECT_EQ(Draw(&seven, 210, 7, 10), rows);  // batches straddle the epochs' borders
  EXPECT_EQ(Draw(&all, 210, 210, 10), rows);  // several epochs in one batch
  EXPECT_NE(210 % one.windows_per_epoch(), 0);
  EXPECT_EQ(one.position().epoch, seven.position().epoch);
  EXPECT_EQ(one.position().window, seven.position().window);
}

TEST(Batches, ResumesAnywhere) {
  const std::vector<int32_t> tokens = Counting(203);
  Batches whole(tokens, 10, 9);
  const auto rows = Draw(&whole, 100, 1, 10);
  for (int64_t stop = 0; stop < 100; ++stop) {
    Batches before(tokens, 10, 9), after(tokens, 10, 9);
    Draw(&before, stop, 1, 10);
    Draw(&after, 3, 1, 10);  // whatever it did before
    after.set_position(before.position());
    const auto rest = Draw(&after, 100 - stop, 1, 10);
    ASSERT_EQ(rest, std::vector(rows.begin() + stop, rows.end())) << "stop " << stop;
  }
}

TEST(Batches, RefusesShortTextAndStrangePositions) {
  const std::vector<int32_t> tokens = Counting(100);
  EXPECT_THAT(ErrorOf([&] { Batches(tokens, 100, 1); }),
              HasSubstr("expected at least 101 training tokens (for context 100), got 100"));
  EXPECT_EQ(Batches(tokens, 99, 1).windows_per_epoch(), 1);
  EXPECT_THAT(ErrorOf([&] { Batches(tokens, 0, 1); }), HasSubstr("context"));
  Batches batches(tokens, 10, 1);
  const int64_t windows = batches.windows_per_epoch();
  for (const Batches::Position bad : {Batches::Position{-1, 0}, {0, -1}, {0, windows + 1}}) {
    EXPECT_THAT(ErrorOf([&] { batches.set_position(bad); }), HasSubstr("data position")) << bad.window;
  }
}

TEST(ValidationWindows, EvenlySpacedWithoutOverlap) {
  for (const int64_t tokens : {11, 21, 22, 100, 999, 12345}) {
    for (const int64_t limit : {1, 2, 3, 64, 1000}) {
      const std::vector<Window> windows = ValidationWindows(tokens, 10, limit);
      ASSERT_EQ(std::ssize(windows), std::min(limit, tokens / 11));
      EXPECT_EQ(windows.front().begin, 0);
      int64_t smallest = tokens, largest = 11;
      for (size_t i = 1; i < windows.size(); ++i) {
        smallest = std::min(smallest, windows[i].begin - windows[i - 1].begin);
        largest = std::max(largest, windows[i].begin - windows[i - 1].begin);
      }
      if (windows.size() < 2) continue;
      EXPECT_GE(smallest, 11);
      EXPECT_LE(largest - smallest, 1);
      EXPECT_EQ(windows.back().begin + 11, tokens);
    }
  }
  EXPECT_THAT(ErrorOf([] { ValidationWindows(10, 10, 4); }), HasSubstr("expected at least 11 tokens"));
  EXPECT_THAT(ErrorOf([] { ValidationWindows(10, 5, 0); }), HasSubstr("limit of at least 1"));
}

}  // namespace
}  // namespace strata
