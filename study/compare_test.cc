#include "study/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/files.h"
#include "report/records.h"
#include "study/compare_report.h"
#include "study/unigram.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CompareTest : public ::testing::Test {
 protected:
  CompareTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / fmt::format("strata-{}-{}", info->name(), getpid());
    fs::remove_all(folder_);
    for (int i = 0; i < 400; ++i) corpus_.train.push_back("strata of stone "[i % 16] + (i / 40) % 3);
    for (int i = 0; i < 80; ++i) corpus_.validation.push_back("strata of stone "[i % 16]);
    corpus_.validation_bytes.assign(corpus_.validation.size(), 2);
    corpus_.vocab = 256;
    corpus_.tokenizer_name = tokenizer_->name();
    corpus_.fingerprint = tokenizer_->fingerprint();
    model_.blocks = 2, model_.dim = 16, model_.heads = 2, model_.context = 8;
    training_.batch = 2, training_.steps = 10, training_.evaluate = 5, training_.checkpoint = 4;
    training_.precision = "f32", training_.lr = 1e-2;
    compare_.residual = {"standard", "attnres:block=2"};
    InstallStopHandlers();
    ClearStop();
  }
  ~CompareTest() override {
    ClearStop();
    fs::remove_all(folder_);
  }
  // Compares in folder `out`; a signal arrives at the first progress report of `stop_at` steps or more.
  Comparison Run(const std::string& out, int64_t stop_at = INT64_MAX) {
    TrainOptions training = training_;
    training.out = folder_ + "/" + out;
    notes_.clear();
    Comparison result = Compare(model_, training, compare_, corpus_, *tokenizer_,
                                [&](int64_t done, int64_t /*total*/, const std::string& note) {
                                  done_.push_back(done);
                                  notes_.push_back(note);
                                  if (done >= stop_at && !StopRequested()) std::raise(SIGTERM);
                                });
    ClearStop();
    InstallStopHandlers();
    return result;
  }
  std::string Message(const std::string& out) {
    try {
      Run(out);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return error.what();
    }
    return "no error";
  }
  double LastLoss(const std::string& run) const {
    return ReadRecords(folder_ + "/" + run + "/metrics.jsonl").lines.back().validation_loss;
  }

  std::string folder_;
  Corpus corpus_;
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  ModelConfig model_;
  TrainOptions training_;
  CompareOptions compare_;
  std::vector<std::string> notes_;
  std::vector<int64_t> done_;
};

TEST_F(CompareTest, TableIsWhatTheRunsRecorded) {
  const Comparison result = Run("one");
  ASSERT_EQ(result.arms.size(), 2u);
  const ComparedArm &standard = result.arms[0], &attnres = result.arms[1];
  const double s1 = LastLoss("one/standard/seed-1"), s2 = LastLoss("one/standard/seed-2");
  const double a1 = LastLoss("one/attnres-block-2/seed-1"), a2 = LastLoss("one/attnres-block-2/seed-2");
  EXPECT_THAT(standard.losses, ElementsAre(s1, s2));
  EXPECT_NE(s1, s2);
  EXPECT_DOUBLE_EQ(attnres.loss, (a1 + a2) / 2);
  EXPECT_DOUBLE_EQ(attnres.nats_per_byte, (a1 + a2) / 4);  // two bytes a token
  // Two pairs: the half width is t_{0.975, 1} * |d1 - d2| / 2, since deviation / sqrt(2) = |d1 - d2| / 2.
  const double d1 = a1 - s1, d2 = a2 - s2;
  const double half = 12.706204736174698 * std::abs(d1 - d2) / 2;
  EXPECT_GT(half, 0);
  EXPECT_NEAR(*attnres.difference, (d1 + d2) / 2, 1e-12);
  EXPECT_NEAR(*attnres.difference_low, (d1 + d2) / 2 - half, 1e-9);
  EXPECT_NEAR(*attnres.difference_high, (d1 + d2) / 2 + half, 1e-9);
  EXPECT_EQ(*standard.difference, 0);
  EXPECT_EQ(attnres.tokens, 10 * 2 * 8);
  EXPECT_GT(attnres.parameters, standard.parameters);
  EXPECT_GT(*attnres.relative_step_time, 0.2);
  EXPECT_NEAR(*standard.relative_step_time, 1, 1e-12);
  EXPECT_FALSE(attnres.resumed);
  const auto json = ToJson(attnres);
  EXPECT_EQ(json["residual"], "attnres:block=2");
  EXPECT_EQ(json["loss"], attnres.loss);
  EXPECT_EQ(json["difference_low"], *attnres.difference_low);
}

TEST_F(CompareTest, ArmsTakeTurnsSeedBySeed) {
  Run("one");
  std::vector<std::string> order;
  for (const std::string& note : notes_) {
    const size_t end = note.find(": step");
    if (end == std::string::npos) continue;
    if (order.empty() || order.back() != note.substr(0, end)) order.push_back(note.substr(0, end));
  }
  EXPECT_THAT(order, ElementsAre("standard seed 1", "attnres:block=2 seed 1", "standard seed 2",
                                 "attnres:block=2 seed 2"));
  EXPECT_TRUE(std::is_sorted(done_.begin(), done_.end()));
  EXPECT_EQ(done_.back(), 40);
}

TEST_F(CompareTest, AnInterruptedComparisonGoesOnToTheSameTable) {
  const Comparison whole = Run("whole");
  EXPECT_TRUE(Run("parts", 7).interrupted);
  EXPECT_FALSE(fs::exists(folder_ + "/parts/attnres-block-2"));
  const Comparison second = Run("parts", 23);
  EXPECT_TRUE(second.interrupted);
  EXPECT_TRUE(second.arms.empty());
  const Comparison parts = Run("parts");
  ASSERT_FALSE(parts.interrupted);
  ASSERT_EQ(parts.arms.size(), whole.arms.size());
  for (size_t a = 0; a < parts.arms.size(); ++a) {
    auto one = ToJson(whole.arms[a]), two = ToJson(parts.arms[a]);
    EXPECT_EQ(two["resumed"], a == 0);
    for (const char* key : {"resumed", "relative_step_time"}) one.erase(key), two.erase(key);
    EXPECT_EQ(one, two);
    EXPECT_EQ(whole.arms[a].sample, parts.arms[a].sample);
    EXPECT_GE(whole.arms[a].sample.size(), 400u);
  }
  EXPECT_THAT(AlignTable(TableOf(parts)), HasSubstr("standard *"));
  EXPECT_THAT(NotesOf(parts).back(), HasSubstr("went on from its checkpoint"));
}

TEST_F(CompareTest, FinishedRunsAreNotRepeated) {
  const Comparison first = Run("one");
  const std::string metrics = folder_ + "/one/standard/seed-1/metrics.jsonl";
  const auto before = fs::last_write_time(metrics);
  compare_.seeds = 3;
  const Comparison more = Run("one");
  EXPECT_EQ(fs::last_write_time(metrics), before);
  EXPECT_EQ(more.arms[0].losses.size(), 3u);
  EXPECT_EQ(more.arms[0].losses[0], first.arms[0].losses[0]);
  EXPECT_EQ(more.arms[1].losses[1], first.arms[1].losses[1]);
}

TEST_F(CompareTest, ARunWithoutACheckpointStartsAnew) {
  const Comparison whole = Run("whole");
  const std::string folder = folder_ + "/parts/standard/seed-1";
  Run("parts", 7);
  fs::remove(folder + "/state.safetensors");
  EXPECT_EQ(Run("parts").arms[0].losses, whole.arms[0].losses);
}

TEST_F(CompareTest, OtherOptionsAreRefusedByName) {
  Run("one", 3);
  training_.lr = 0.5;
  EXPECT_THAT(Message("one"), HasSubstr("--out: expected lr 0.01 as in"));
  training_.lr = 1e-2;
  model_.dim = 32;
  EXPECT_THAT(Message("one"), HasSubstr("expected dim 16 as in"));
  model_.dim = 16;
  corpus_.validation[5] ^= 1;
  EXPECT_THAT(Message("one"), HasSubstr("--text: expected the text that the comparison in"));
  corpus_.validation[5] ^= 1;
  EXPECT_FALSE(Run("one").interrupted);
}

TEST_F(CompareTest, BadRequestsAreRefused) {
  compare_.residual = {"mhc", "mhc"};
  EXPECT_THAT(Message("bad"), HasSubstr("--residual: expected each one once"));
  compare_.residual = {"standard", "attnress"};
  EXPECT_THAT(Message("bad"), HasSubstr("attnres"));
  compare_.residual = {};
  EXPECT_THAT(Message("bad"), HasSubstr("--residual: expected at least one"));
  compare_.residual = {"standard"};
  compare_.seeds = 0;
  EXPECT_THAT(Message("bad"), HasSubstr("--seeds: expected 1 to 1000"));
  EXPECT_FALSE(fs::exists(folder_ + "/bad"));
}

TEST_F(CompareTest, OneSeedGivesNoInterval) {
  compare_.seeds = 1;
  const Comparison result = Run("one");
  const ComparedArm& arm = result.arms[1];
  EXPECT_DOUBLE_EQ(*arm.difference, arm.loss - result.arms[0].loss);
  EXPECT_FALSE(arm.difference_low.has_value());
  EXPECT_TRUE(ToJson(arm)["difference_high"].is_null());
  EXPECT_THAT(AnswerOf(result), HasSubstr("one seed cannot tell"));
  EXPECT_THAT(NotesOf(result)[1], HasSubstr("One seed gives no interval"));
}

TEST_F(CompareTest, WithoutStandardThereIsNoDifference) {
  compare_.residual = {"attnres:block=2"};
  compare_.seeds = 1;
  const Comparison result = Run("one");
  EXPECT_FALSE(result.arms[0].difference.has_value());
  EXPECT_TRUE(result.arms[0].relative_step_time.has_value());
  EXPECT_THAT(AnswerOf(result), HasSubstr("no difference to judge"));
}

// Arms with given losses and intervals, as AnswerOf sees them.
Comparison Made(std::vector<ComparedArm> arms) {
  Comparison made;
  made.arms = std::move(arms);
  for (ComparedArm& arm : made.arms) arm.losses = {arm.loss, arm.loss};
  return made;
}
ComparedArm Arm(const char* residual, double loss, double difference, double low, double high) {
  ComparedArm arm;
  arm.residual = residual, arm.loss = loss;
  arm.difference = difference, arm.difference_low = low, arm.difference_high = high;
  return arm;
}

TEST(CompareAnswer, SaysWhatTheIntervalsSay) {
  const ComparedArm base = Arm("standard", 3, 0, 0, 0);
  EXPECT_EQ(
      AnswerOf(Made({base, Arm("mhc", 2.9, -0.1, -0.15, -0.05), Arm("attnres", 2.95, -0.05, -0.2, 0.1)})),
      "mhc has the lowest validation loss, 0.1000 nats per token below standard (95 % interval -0.1500 to "
      "-0.0500, 2 seeds).");
  EXPECT_THAT(AnswerOf(Made({base, Arm("mhc", 2.9, -0.1, -0.25, 0.05)})),
              HasSubstr("Not resolved: mhc comes out 0.1000 nats per token below standard"));
  EXPECT_THAT(
      AnswerOf(Made({base, Arm("mhc", 2.9, -0.1, -0.25, 0.05), Arm("gated", 2.92, -0.08, -0.1, -0.06)})),
      HasSubstr("its interval includes zero (95 % interval -0.2500 to +0.0500, 2 seeds). gated is "
                "resolved, 0.0800 below standard (-0.1000 to -0.0600)."));
  EXPECT_THAT(AnswerOf(Made({base, Arm("mhc", 3.1, 0.1, 0.05, 0.15)})),
              HasSubstr("standard has the lowest validation loss; the nearest, mhc, is 0.1000 nats per token "
                        "above standard"));
}

TEST(CompareFolder, KeepsOnlySafeCharacters) {
  EXPECT_EQ(ArmFolder("attnres:block=4,x=1.5"), "attnres-block-4-x-1.5");
  EXPECT_EQ(ArmFolder("a/../b c"), "a-..-b-c");
}

// Counts plus one: a 3, b 2, c 1 of 6. Windows of two targets: b c of the first window, a of none beyond.
TEST(CompareUnigram, IsTheCrossEntropyOfTheCounts) {
  Corpus corpus;
  corpus.vocab = 3;
  corpus.train = {0, 0, 1};
  corpus.validation = {0, 1, 2};
  corpus.validation_bytes = {1, 2, 4};
  const EvalResult result = EvaluateUnigram(corpus, 2, 8);
  EXPECT_EQ(result.tokens, 2);
  EXPECT_EQ(result.bytes, 6);
  EXPECT_NEAR(result.nats_per_token, (std::log(6.0 / 2) + std::log(6.0 / 1)) / 2, 1e-12);
  EXPECT_NEAR(result.nats_per_byte, (std::log(6.0 / 2) + std::log(6.0 / 1)) / 6, 1e-12);
}

}  // namespace
}  // namespace strata
