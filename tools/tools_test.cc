#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/testing.h"

namespace strata {
namespace {

TEST_F(ToolsTest, HelpOfEveryCommand) {
  const Result help = Run("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* command : {"train", "eval", "generate", "tokenize", "convert", "mechanisms"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
    const Result one = Run(std::string(command) + " --help");
    EXPECT_EQ(one.code, 0) << one.err;
    EXPECT_THAT(one.out, HasSubstr(fmt::format("Usage: strata {}", command)));
    EXPECT_THAT(one.out, HasSubstr("--json"));
  }
  const std::string train = Run("train --help").out;
  for (const char* group : {"\nModel:", "\nTraining:", "\nData:", "\nOutput:"})
    EXPECT_THAT(train, HasSubstr(group));
  EXPECT_THAT(train, HasSubstr("peak learning rate [0.001]"));
  EXPECT_THAT(Run("--version").out, HasSubstr("strata "));
  EXPECT_EQ(Run("").code, 2);
}

TEST_F(ToolsTest, UnknownNamesNameTheNearest) {
  ExpectError(Run("trian"), 2, "trian: unknown command; did you mean train?");
  ExpectError(Train("run", "--blcks 3"), 2, "unknown option --blcks; did you mean --blocks?");
  ExpectError(Train("run", "--residual attnrse"), 2, "did you mean \"attnres\"?");
  ExpectError(Train("run", "surplus"), 2, "surplus");
  EXPECT_FALSE(fs::exists(folder_ + "/run"));
}

TEST_F(ToolsTest, ImpossibleSizesAreUsageErrors) {
  const std::pair<const char*, const char*> cases[] = {
      {"--blocks=1e30", "--blocks: expected an integer, got 1e30"},
      {"--blocks=100000000000000000000", "--blocks: expected an integer"},
      {"--blocks=1000000000", "--blocks: expected 1 to "},
      {"--blocks=0", "--blocks: expected 1 to "},
      {"--dim=-16", "--dim: expected 1 to "},
      {"--dim=9223372036854775807", "--dim: expected 1 to "},
      {"--heads=3", "--heads: expected a divisor of --dim 128, got 3"},
      {"--heads=128", "--heads: expected an even width per head"},
      {"--kv-heads=3", "--kv-heads: expected a divisor of --heads 4, got 3"},
      {"--mlp=-1", "--mlp: expected 0 to "},
      {"--vocab=300", "--vocab: expected 256 (the tokenizer's), got 300"},
      {"--vocab=1", "--vocab: expected 2 to "},
      {"--context=0", "--context: expected 1 to "},
      {"--residual=attnres:block=0", "block"},
      {"--residual=attnres:blok=2", "block"},
      {"--residual=mhc:slots=x", "slots"},
      {"--activation=relu", "--activation: expected swiglu or gelu, got relu"},
      {"--positions=sin", "--positions: expected rope or none, got sin"},
      {"--batch=1000000 --context=10000000", "--batch: expected a model and batch of less than 2^60 bytes"},
      {"--batch=0", "--batch: expected 1 to "},
      {"--steps=0", "--steps: expected 1 to "},
      {"--steps 5 --tokens 9", "--tokens: expected one of --steps and --tokens, got both"},
      {"--lr=0", "--lr: expected a number above 0, got 0"},
      {"--lr=nan", "--lr: expected a finite number, got nan"},
      {"--schedule=linear", "--schedule: expected cosine, wsd or constant, got linear"},
      {"--beta2=1", "--beta2: expected 0 to below 1, got 1"},
      {"--precision=f16", "--precision: expected f32, bf16 or auto, got f16"},
      {"--threads=-1", "--threads: expected 0 to 4096, got -1"},
      {"--seed=-1", "--seed: expected 0 to "},
  };
  for (const auto& [options, part] : cases) {
    ExpectError(Run(std::string("train --text text.txt --out run --quiet ") + options), 2, part);
  }
  EXPECT_FALSE(fs::exists(folder_ + "/run"));
}

TEST_F(ToolsTest, RefusesMoreMemoryThanThereIs) {
  const Result result =
      Run("train --text text.txt --out run --quiet --batch 100000 --context 1000 --dim 1024 --blocks 32");
  ExpectError(result, 1, "(free now), got ");
  EXPECT_THAT(result.err, HasSubstr("--batch"));
  EXPECT_FALSE(fs::exists(folder_ + "/run"));
}

TEST_F(ToolsTest, ConfigFilesAreCheckedAndTheCommandLineWins) {
  const auto config = [&](const std::string& text) {
    std::ofstream(folder_ + "/c.json", std::ios::binary) << text;
    return Train("run", "--config c.json");
  };
  ExpectError(config("{\"sede\": 3}"), 2, "c.json: unknown option \"sede\"; did you mean \"seed\"?");
  ExpectError(config("{\"seed\": \"three\"}"), 2, "c.json: \"seed\": expected an integer, got \"three\"");
  ExpectError(config("{\"blocks\": 1.5}"), 2, "c.json: \"blocks\": expected an integer, got 1.5");
  ExpectError(config(std::string("\x7f"
                                 "ELF\0\0",
                                 6)),
              2, "c.json: expected a JSON object");
  ExpectError(Train("run", "--config missing.json"), 2, "missing.json");
  EXPECT_FALSE(fs::exists(folder_ + "/run"));
  EXPECT_EQ(config("{\"seed\": 3, \"steps\": 99, \"kv-heads\": 1}").code, 0);
  const auto written = nlohmann::json::parse(ReadFile(folder_ + "/run/config.json"));
  EXPECT_EQ(written["seed"], 3);
  EXPECT_EQ(written["kv-heads"], 1);
  EXPECT_EQ(written["steps"], 6);
  EXPECT_EQ(written["format"], 1);
  // A run's config.json is itself a config file.
  EXPECT_EQ(Run("train --config run/config.json --out again --quiet").code, 0);
  EXPECT_TRUE(ReadFile(folder_ + "/run/model.safetensors") == ReadFile(folder_ + "/again/model.safetensors"));
}

TEST_F(ToolsTest, TrainsResumesScoresAndWrites) {
  const Result trained = Train("run", "--json --residual attnres:block=2");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(trained.err.substr(0, 7), "memory:");
  const auto json = nlohmann::json::parse(trained.out);
  EXPECT_EQ(json["step"], 6);
  EXPECT_EQ(json["tokens"], 6 * 2 * 16);
  EXPECT_EQ(json["interrupted"], false);
  EXPECT_GT(json["validation_loss"].get<double>(), 1.0);
  EXPECT_LT(json["validation_loss"].get<double>(), 6.0);

  ExpectError(Train("run"), 2, "run: expected an empty folder (or --resume)");
  const Result more = Run("train --resume --out run --steps 8 --json --quiet");
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(more.err, "");
  EXPECT_EQ(nlohmann::json::parse(more.out)["step"], 8);
  ExpectError(Run("train --resume --out run --lr 5 --quiet"), 2, "--resume: expected lr 0.001");

  const Result scored = Run("eval --model run --text text.txt --json --threads 1");
  ASSERT_EQ(scored.code, 0) << scored.err;
  const auto score = nlohmann::json::parse(scored.out);
  const auto size = static_cast<int64_t>(fs::file_size(folder_ + "/text.txt"));
  EXPECT_EQ(score["tokens"], size - 1);
  EXPECT_EQ(score["bytes"], size - 1);
  EXPECT_DOUBLE_EQ(score["nats_per_byte"], score["nats_per_token"]);
  EXPECT_NEAR(std::log(score["perplexity"].get<double>()), score["nats_per_token"].get<double>(), 1e-9);

  const std::string write = "generate --threads 1 --model run --tokens 40 --seed 5 --prompt 'Layer 1' ";
  const auto text = nlohmann::json::parse(Run(write + "--json").out);
  EXPECT_EQ(text["prompt"], "Layer 1");
  EXPECT_EQ(text["tokens"], 40);
  EXPECT_EQ(Run(write).out.substr(0, 7), "Layer 1");
  EXPECT_EQ(Run(write).out, Run(write + "--stream").out);
  EXPECT_EQ(Run(write).out.size(), 7 + 40 + 1u);
  EXPECT_EQ(Run("generate --threads 1 --model run --tokens 3 < text.txt").code, 0);
  EXPECT_EQ(Run("generate --threads 1 --model run --tokens 3 --temperature 0 < /dev/null").out.substr(0, 1),
            "\n");
}

TEST_F(ToolsTest, WhatTheSystemRefusesIsOneLine) {
  ASSERT_EQ(Train("run", "--quiet").code, 0);
  const std::string before = ReadFile(folder_ + "/run/model.safetensors");
  const std::string limited = fmt::format("--help >all.tmp; ulimit -f 8; '{}' ", STRATA_EXECUTABLE);
  ExpectError(Run(limited + "train --resume --steps 12 --out run --threads 1 --quiet"), 1, "run");
  EXPECT_EQ(ReadFile(folder_ + "/run/model.safetensors"), before);
  EXPECT_FALSE(fs::exists(folder_ + "/run/model.safetensors.tmp"));
  EXPECT_EQ(Train("other", "2>&-").code, 0);  // without a standard error to write to
  std::ofstream(folder_ + "/huge.json") << "{\"lr\": 1e999}";
  ExpectError(Train("third", "--config huge.json"), 2, "huge.json: expected numbers that fit");
  ExpectError(Train("fourth", "--residual \"$(printf 'mhc\\377')\""), 2, "expected UTF-8");
  ExpectError(Train("fifth", "--residual \"$(printf 'mhc\\nfoo')\""), 2, "mhc foo");
}

TEST_F(ToolsTest, AShardsHeaderWithAnotherMagicIsAnError) {
  std::vector<int32_t> header(256, 0);
  header[0] = 1234, header[1] = 1, header[2] = 600;
  std::ofstream shard(folder_ + "/wrong.bin", std::ios::binary);
  shard.write(reinterpret_cast<const char*>(header.data()), 1024);
  for (int i = 0; i < 1200; ++i) shard.put(i % 2 == 0 ? static_cast<char>(i % 100) : '\0');
  shard.close();
  ExpectError(Run("train --blocks 1 --dim 16 --heads 2 --context 16 --steps 1 --threads 1 --text wrong.bin "
                  "--out run"),
              1, "expected magic 20240520 version 1, got magic 1234");
}

TEST_F(ToolsTest, BadRequestsToEvalAndGenerate) {
  ASSERT_EQ(Train("run", "--quiet").code, 0);
  ExpectError(Run("eval --text text.txt"), 2, "eval: expected --model");
  ExpectError(Run("eval --model run"), 2, "eval: expected --text");
  ExpectError(Run("eval --model nowhere --text text.txt"), 1, "nowhere: expected the folder of a run");
  ExpectError(Run("eval --model run --text nowhere.txt"), 1, "nowhere.txt");
  ExpectError(Run("generate --model run --temperature -1"), 2, "--temperature: expected 0 or more, got -1");
  ExpectError(Run("generate --model run --top-p 2"), 2, "--top-p: expected above 0 to 1, got 2");
  ExpectError(Run("generate --model run --tokens 0"), 2, "--tokens: expected 1 to ");
  ExpectError(Run("generate --model run --json --stream"), 2, "--stream: expected one of");
  ExpectError(Run("generate --model run --prompt x --tokens 9 > /dev/full"), 1, "standard output");
  std::ofstream(folder_ + "/run/model.safetensors", std::ios::trunc) << "garbage";
  ExpectError(Run("generate --model run --prompt x"), 1, "model.safetensors");
}

TEST_F(ToolsTest, TrainsWithATokenizerOfItsOwn) {
  const Result made = Run("tokenize --vocab 300 --text text.txt --out t.model --json");
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(nlohmann::json::parse(made.out)["vocab"], 300);
  ASSERT_EQ(Train("run", "--quiet --tokenizer t.model").code, 0);
  EXPECT_TRUE(fs::exists(folder_ + "/run/tokenizer.model"));
  fs::remove(folder_ + "/t.model");
  EXPECT_EQ(Run("train --resume --out run --steps 7 --quiet").code, 0);
  const auto score = nlohmann::json::parse(Run("eval --model run --text text.txt --json --threads 1").out);
  EXPECT_LT(score["tokens"].get<int64_t>(), score["bytes"].get<int64_t>());
  // Another tokenizer in its place is noticed.
  ASSERT_EQ(Run("tokenize --vocab 301 --text text.txt --out run/tokenizer.model").code, 0);
  ExpectError(Run("eval --model run --text text.txt"), 1, "expected a tokenizer of fingerprint");
  ExpectError(Run("tokenize --vocab 3 --text text.txt"), 2, "--vocab: expected 260 to ");
  ExpectError(Run("tokenize --vocab 300"), 2, "tokenize: expected --text");
}

TEST_F(ToolsTest, CtrlCWritesACheckpoint) {
  // timeout sends the signal that Ctrl-C sends; its own exit code is then the program's.
  const std::string command = fmt::format(
      "cd '{}' && timeout --preserve-status -s INT 2 '{}' train --blocks 2 --dim 16 --heads 2 --context 16 "
      "--batch 2 "
      "--steps 100000000 --threads 1 --text text.txt --out run --quiet --json >out.tmp 2>err.tmp",
      folder_, STRATA_EXECUTABLE);
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const auto json = nlohmann::json::parse(ReadFile(folder_ + "/out.tmp"));
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_GT(json["step"].get<int64_t>(), 0);
  const auto steps = json["step"].get<int64_t>() + 2;
  const Result more = Run(fmt::format("train --resume --out run --quiet --json --steps {}", steps));
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(nlohmann::json::parse(more.out)["step"], steps);
}

TEST_F(ToolsTest, ListsTheConnections) {
  const auto names = nlohmann::json::parse(Run("mechanisms --json").out).get<std::vector<std::string>>();
  EXPECT_THAT(names,
              ::testing::ElementsAre("standard", "highway", "state-gate", "review", "hc", "mhc", "mhc-lite",
                                     "krom", "gated", "attnres", "dense", "rezero", "layerscale", "x0"));
}

TEST_F(ToolsTest, TheDocumentationOfTheConnectionsIsCurrent) {
  EXPECT_EQ(Run("mechanisms --markdown").out, ReadFile(STRATA_SOURCE_DIR "/docs/mechanisms.md"))
      << "build/strata mechanisms --markdown > docs/mechanisms.md";
}

TEST_F(ToolsTest, ExplainsEachConnectionAndMeasuresItsInitialValues) {
  for (const std::string name : {"review", "hc", "gated:slots=2", "attnres", "dense", "x0"}) {
    const auto page = nlohmann::json::parse(Run("mechanisms " + name + " --json").out);
    for (const char* key : {"equations", "source", "options", "parameters"}) {
      EXPECT_TRUE(page.contains(key)) << name << key;
    }
    const Result report = Run("mechanisms " + name + " --init-report");
    EXPECT_EQ(report.code, 0) << report.err;
    for (const auto& p : page["parameters"]) {
      EXPECT_THAT(report.out, HasSubstr(p["name"].get<std::string>().substr(0, 5))) << name;
    }
  }
  ExpectError(Run("mechanisms higway"), 2, "did you mean \"highway\"");
  ExpectError(Run("mechanisms mhc-lite:slots=6"), 2, "slots");
  ExpectError(Run("mechanisms krom:slots=3"), 2, "power of two");
  ExpectError(Run("mechanisms attnres:block=0"), 2, "block");
  ExpectError(Run("mechanisms mhc --sites 0"), 2, "--sites");
  ExpectError(Run("mechanisms --init-report"), 2, "NAME");
}

TEST_F(ToolsTest, WarnsOfAConvexReviewThatIsTooDeep) {
  const char* const kDeep =
      "train --blocks 11 --dim 8 --heads 1 --context 8 --batch 1 --steps 1 --text text.txt --threads 1 ";
  EXPECT_THAT(Run(std::string(kDeep) + "--residual review:form=convex --out a").err,
              HasSubstr("warning: review: form=convex"));
  EXPECT_THAT(Run(std::string(kDeep) + "--residual review --out b").err, Not(HasSubstr("warning: review")));
}

}  // namespace
}  // namespace strata
