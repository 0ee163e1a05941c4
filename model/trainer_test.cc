#include "model/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/checkpoint.h"
#include "model/memory.h"
#include "model/safetensors.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / fmt::format("strata-{}-{}", info->name(), getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    // 25 windows of 9 tokens: with 4 windows a step an epoch ends within every seventh step.
    for (int i = 0; i < 230; ++i) corpus_.train.push_back("strata of stone "[i % 16] + (i / 40) % 3);
    for (int i = 0; i < 60; ++i) corpus_.validation.push_back("strata of stone "[i % 16]);
    corpus_.validation_bytes.assign(corpus_.validation.size(), 1);
    corpus_.vocab = 256;
    corpus_.tokenizer_name = tokenizer_->name();
    corpus_.fingerprint = tokenizer_->fingerprint();
  }
  ~TrainerTest() override { fs::remove_all(folder_); }

  static ModelConfig Model(const std::string& residual = "standard") {
    ModelConfig model;
    model.residual = residual;
    model.blocks = 2;
    model.dim = 16;
    model.heads = 2;
    model.context = 8;
    return model;
  }
  TrainOptions Options(const std::string& out) const {
    TrainOptions options;
    options.batch = 2;
    options.accumulate = 2;
    options.steps = 16;
    options.evaluate = 4;
    options.checkpoint = 100;
    options.precision = "f32";
    options.threads = 1;
    options.lr = 1e-2;
    options.out = folder_ + "/" + out;
    return options;
  }
  // Trains; after step `stop_at` a signal arrives, as from Ctrl-C.
  TrainResult Run(const ModelConfig& model, const TrainOptions& options, bool resume, int64_t stop_at = -1) {
    InstallStopHandlers();
    ClearStop();
    const TrainResult result =
        Train(model, options, corpus_, *tokenizer_, resume, [&](const StepRecord& record) {
          if (record.step == stop_at) std::raise(SIGTERM);
        });
    ClearStop();
    return result;
  }
  std::string Message(const ModelConfig& model, const TrainOptions& options, bool resume) {
    try {
      Run(model, options, resume);
    } catch (const Error& error) {
      code_ = error.code();
      return error.what();
    }
    return "no error";
  }
  static std::vector<nlohmann::json> Metrics(const std::string& out) {
    std::vector<nlohmann::json> records;
    std::ifstream file(out + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) records.push_back(nlohmann::json::parse(line));
    return records;
  }

  std::string folder_;
  Corpus corpus_;
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  ExitCode code_ = ExitCode::kOk;
};

TEST_F(TrainerTest, ResumeIsBitExactAcrossAnEpochBorder) {
  for (const char* residual : {"standard", "attnres:block=2", "mhc"}) {
    const TrainOptions whole = Options(std::string("whole-") + residual);
    TrainOptions halves = Options(std::string("halves-") + residual);
    EXPECT_FALSE(Run(Model(residual), whole, false).interrupted);
    const TrainResult first = Run(Model(residual), halves, false, 7);
    EXPECT_TRUE(first.interrupted);
    EXPECT_EQ(first.step, 7);
    const TrainResult second = Run(Model(residual), halves, true);
    EXPECT_EQ(second.step, 16);
    EXPECT_EQ(second.tokens, 16 * 2 * 2 * 8);
    for (const char* file : {"/model.safetensors", "/state.safetensors"}) {
      EXPECT_TRUE(ReadFile(whole.out + file) == ReadFile(halves.out + file)) << residual << file;
    }
    const auto a = Metrics(whole.out), b = Metrics(halves.out);
    ASSERT_EQ(a.size(), 16u);
    ASSERT_EQ(b.size(), 16u);
    for (size_t i = 0; i < a.size(); ++i) {
      for (const char* key : {"step", "tokens", "loss", "gradient_norm", "lr"})
        EXPECT_EQ(a[i][key], b[i][key]);
      EXPECT_EQ(a[i].contains("validation_loss"), i % 4 == 3);
      if (i % 4 == 3) {
        EXPECT_EQ(a[i]["validation_loss"], b[i]["validation_loss"]);
        EXPECT_EQ(a[i]["state_rms"].size(), 4u);
        EXPECT_EQ(a[i]["update_rms"], b[i]["update_rms"]);
      }
      EXPECT_EQ(b[i].contains("resumed"), i == 7);
    }
  }
}

TEST_F(TrainerTest, EqualSeedsGiveEqualRunsAndOthersDoNot) {
  TrainOptions one = Options("one"), two = Options("two"), three = Options("three");
  three.seed = 2;
  for (const TrainOptions& options : {one, two, three}) Run(Model(), options, false);
  EXPECT_TRUE(ReadFile(one.out + "/model.safetensors") == ReadFile(two.out + "/model.safetensors"));
  EXPECT_FALSE(ReadFile(one.out + "/model.safetensors") == ReadFile(three.out + "/model.safetensors"));
}

TEST_F(TrainerTest, AccumulationEqualsOneLargeBatch) {
  TrainOptions one = Options("one"), two = Options("two");
  one.batch = 4, one.accumulate = 1;
  two.batch = 1, two.accumulate = 4;
  for (const TrainOptions& options : {one, two}) Run(Model(), options, false);
  const auto a = Metrics(one.out), b = Metrics(two.out);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i]["loss"].get<double>(), b[i]["loss"].get<double>(), 1e-4);
    EXPECT_EQ(a[i]["tokens"], b[i]["tokens"]);
  }
  EXPECT_LT(a.back()["loss"].get<double>(), a.front()["loss"].get<double>() - 0.5);
}

TEST_F(TrainerTest, MetricsAreCutBackToTheCheckpoint) {
  const TrainOptions options = Options("run");
  Run(Model(), options, false, 6);
  std::ofstream(options.out + "/metrics.jsonl", std::ios::app) << R"({"step": 7, "loss": 1})"
                                                               << "\n{\"st";
  Run(Model(), options, true);
  const auto records = Metrics(options.out);
  ASSERT_EQ(records.size(), 16u);
  for (size_t i = 0; i < records.size(); ++i) EXPECT_EQ(records[i]["step"], i + 1);
}

TEST_F(TrainerTest, StepsMayGrowOnResume) {
  TrainOptions options = Options("run");
  options.schedule = "constant";
  options.steps = 8;
  options.warmup = 1;
  Run(Model(), options, false);
  options.steps = 16;
  EXPECT_EQ(Run(Model(), options, true).step, 16);
  options.steps = 5;
  EXPECT_THAT(Message(Model(), options, true),
              HasSubstr("--steps: expected at least 16 (already done), got 5"));
}

TEST_F(TrainerTest, RefusesAFolderInUse) {
  const TrainOptions options = Options("run");
  Run(Model(), options, false);
  EXPECT_THAT(Message(Model(), options, false), HasSubstr("expected an empty folder (or --resume)"));
  EXPECT_EQ(code_, ExitCode::kUsage);
  EXPECT_THAT(Message(Model(), Options("nothing"), true), HasSubstr("expected the folder of a run"));
}

TEST_F(TrainerTest, RefusesToResumeAnotherRun) {
  const TrainOptions options = Options("run");
  Run(Model(), options, false);
  TrainOptions other = options;
  other.lr = 0.5;
  EXPECT_THAT(Message(Model(), other, true), HasSubstr("--resume: expected lr 0.01 as in"));
  EXPECT_THAT(Message(Model("mhc"), options, true), HasSubstr("--resume: expected residual \"standard\""));
  corpus_.train[3] ^= 1;
  EXPECT_THAT(Message(Model(), options, true), HasSubstr("expected the text that the run began with"));
}

TEST_F(TrainerTest, NamesTheFirstNonFiniteTensorAndKeepsTheCheckpoint) {
  TrainOptions options = Options("run");
  options.checkpoint = 1;
  options.lr = 1e30;
  options.clip = 0;
  const std::string message = Message(Model(), options, false);
  EXPECT_EQ(code_, ExitCode::kFailed);
  EXPECT_THAT(message, HasSubstr("first non-finite tensor: "));
  EXPECT_THAT(message, HasSubstr("the checkpoint of step"));
  const LoadedModel loaded = LoadModel(options.out, Precision::kF32);
  ParameterSet& parameters = loaded.decoder->parameters();
  for (int64_t i = 0; i < parameters.total(); ++i) ASSERT_TRUE(std::isfinite(parameters.values()[i]));
}

TEST_F(TrainerTest, AFullDiskLeavesTheOldCheckpoint) {
  TrainOptions options = Options("run");
  Run(Model(), options, false, 4);
  const std::string model = ReadFile(options.out + "/model.safetensors");
  const std::string state = ReadFile(options.out + "/state.safetensors");
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {static_cast<rlim_t>(model.size() / 2), before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = Message(Model(), options, true);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(message, HasSubstr("safetensors"));
  EXPECT_EQ(code_, ExitCode::kFailed);
  EXPECT_TRUE(ReadFile(options.out + "/model.safetensors") == model);
  EXPECT_TRUE(ReadFile(options.out + "/state.safetensors") == state);
  EXPECT_EQ(Run(Model(), options, true).step, 16);
}

TEST_F(TrainerTest, RefusesMoreMemoryThanIsFree) {
  const MemoryEstimate estimate{600, 600, 1200, 100};
  try {
    CheckMemory(estimate, 2499);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected at most 2.4 KiB (free now), got 2.4 KiB; a smaller --dim"));
  }
  CheckMemory(estimate, 2500);
  ModelConfig model = Model();
  model.Resolve();
  const MemoryEstimate measured = EstimateMemory(model, 2, Precision::kF32);
  EXPECT_EQ(measured.parameters, CountParameters(model) * 4);
  EXPECT_EQ(measured.moments, 2 * measured.gradients);
  EXPECT_GT(measured.activations, 2 * 8 * (256 + 2 * 2 * 16) * 4);
  EXPECT_GT(FreeBytes(), 1 << 20);
  EXPECT_GT(PeakBytes(), 1 << 20);
}

TEST_F(TrainerTest, EvaluateAllScoresEachTokenOnce) {
  ModelConfig model = Model();
  model.Resolve();
  const auto decoder = MakeDecoder(model, Precision::kF32);
  decoder->parameters().Initialise(1);
  decoder->WeightsChanged();
  const std::vector<int32_t> tokens(corpus_.validation.begin(), corpus_.validation.begin() + 21);
  const std::vector<int32_t> bytes(21, 2);
  const EvalResult one = EvaluateAll(decoder.get(), tokens, bytes, 1);
  EXPECT_EQ(one.tokens, 20);
  EXPECT_EQ(one.bytes, 40);
  EXPECT_DOUBLE_EQ(one.nats_per_byte * 2, one.nats_per_token);
  EXPECT_NEAR(EvaluateAll(decoder.get(), tokens, bytes, 5).nats_per_token, one.nats_per_token, 1e-6);
  double sum = 0;
  for (size_t begin = 0; begin < 20; begin += 8) {
    const auto length = static_cast<int64_t>(std::min<size_t>(8, 20 - begin));
    sum += decoder->Evaluate(tokens.data() + begin, tokens.data() + begin + 1, 1, length);
  }
  EXPECT_NEAR(one.nats_per_token, sum / 20, 1e-6);
  EXPECT_THROW(EvaluateAll(decoder.get(), {1}, {1}, 1), Error);
}

// Rewrites a safetensors file with changed tensors or metadata.
template <class Change>
void Rewrite(const std::string& path, Change change) {
  const SafetensorsFile file(path);
  std::vector<TensorView> tensors = file.tensors();
  auto metadata = file.metadata();
  change(&tensors, &metadata);
  WriteSafetensors(path, tensors, metadata);
}

TEST_F(TrainerTest, EveryFaultOfACheckpointIsNamed) {
  const TrainOptions options = Options("run");
  Run(Model(), options, false);
  const std::string path = options.out + "/model.safetensors", state = options.out + "/state.safetensors";
  const std::string good = ReadFile(path), good_state = ReadFile(state);
  const auto expect = [&](const std::string& part) {
    EXPECT_THAT(Message(Model(), options, true), HasSubstr(part));
    EXPECT_EQ(code_, ExitCode::kFailed) << part;
    WriteFileAtomically(path, good);
    WriteFileAtomically(state, good_state);
  };
  std::string name;
  Rewrite(path, [&](auto* tensors, auto*) { name = tensors->back().name, tensors->pop_back(); });
  expect(": expected a tensor " + name);
  Rewrite(path, [&](auto* tensors, auto*) { tensors->back().name = "left.over"; });
  expect(": expected a tensor " + name);
  Rewrite(path, [&](auto* tensors, auto*) {
    tensors->push_back(tensors->back());
    tensors->back().name = "left.over";
  });
  expect("got one more: left.over");
  Rewrite(path, [&](auto* tensors, auto*) { tensors->back().shape.push_back(1); });
  expect(name + ": expected F32");
  Rewrite(path, [&](auto*, auto* metadata) { (*metadata)["step"] = "3"; });
  expect("expected weights of step 16 (the state's), got those of step 3");
  Rewrite(path, [&](auto*, auto* metadata) { (*metadata)["step"] = "x"; });
  expect("expected a step");
  Rewrite(path, [&](auto*, auto* metadata) { (*metadata)["format"] = "9"; });
  expect("expected format version 1, got 9");
  Rewrite(path, [&](auto*, auto* metadata) { (*metadata)["config"] = "{}"; });
  expect("expected weights of the configuration");
  Rewrite(state,
          [&](auto* tensors, auto*) { std::erase_if(*tensors, [](auto& t) { return t.name == "window"; }); });
  expect("expected a tensor window");
  WriteFileAtomically(path, good.substr(0, good.size() - 5));
  expect("model.safetensors");
  WriteFileAtomically(path, "");
  expect("model.safetensors");
  EXPECT_EQ(Run(Model(), options, true).step, 16);
}

TEST_F(TrainerTest, ACrashBetweenTheTwoRenamesIsRepaired) {
  const TrainOptions options = Options("run");
  Run(Model(), options, false, 4);
  const std::string path = options.out + "/model.safetensors";
  const std::string old = ReadFile(path);
  Run(Model(), options, true, 9);
  fs::rename(path, path + ".new");
  WriteFileAtomically(path, old);
  EXPECT_EQ(Run(Model(), options, true).step, 16);
  const TrainOptions whole = Options("whole");
  Run(Model(), whole, false);
  EXPECT_TRUE(ReadFile(whole.out + "/model.safetensors") == ReadFile(path));
}

TEST_F(TrainerTest, LoadModelChecksTheTokenizer) {
  const TrainOptions options = Options("run");
  Run(Model(), options, false);
  EXPECT_EQ(LoadModel(options.out, Precision::kF32).config.dim, 16);
  auto json = nlohmann::json::parse(ReadFile(options.out + "/config.json"));
  json["tokenizer-fingerprint"] = "another";
  WriteFileAtomically(options.out + "/config.json", json.dump());
  try {
    LoadModel(options.out, Precision::kF32);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected a tokenizer of fingerprint another"));
    EXPECT_EQ(error.code(), ExitCode::kFailed);
  }
}

}  // namespace
}  // namespace strata
