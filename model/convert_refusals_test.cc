#include <gmock/gmock.h>

#include <filesystem>

#include "model/convert_testing.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ConvertRefusalsTest : public ConvertTest {
 protected:
  // What is said to these tensors.
  std::string Theirs(const std::string& layout, const Tensors& tensors) const {
    Write("theirs", tensors);
    return Refusal(From(layout, "theirs", "none"));
  }
  std::string Ours(const std::string& layout, const Tensors& tensors,
                   const std::map<std::string, std::string>& metadata = {}) const {
    Write("mine", tensors, metadata);
    return Refusal(To(layout, "mine", "none"));
  }
  // DeepSeek's tensors under strata's names.
  Tensors Mine() const {
    Write("theirs", DeepSeek(2, "F32"));
    Do(From("deepseek-v4", "theirs", "converted"));
    return Read("converted");
  }
};

TEST_F(ConvertRefusalsTest, MissingTensorsAndLayersAreNamed) {
  Tensors theirs = DeepSeek(3, "F32");
  theirs.erase("layers.1.hc_ffn_base");
  EXPECT_THAT(Theirs("deepseek-v4", theirs),
              HasSubstr("theirs: expected a tensor layers.1.hc_ffn_base, got none"));
  theirs.erase("layers.2.hc_attn_scale");
  EXPECT_THAT(Theirs("deepseek-v4", theirs),
              HasSubstr("layers.2.hc_attn_scale and layers.1.hc_ffn_base, got none"));
  theirs = DeepSeek(3, "F32");
  for (const char* sub : {"attn", "ffn"}) {
    for (const char* kind : {"fn", "base", "scale"})
      theirs.erase(fmt::format("layers.1.hc_{}_{}", sub, kind));
  }
  EXPECT_THAT(Theirs("deepseek-v4", theirs),
              HasSubstr("expected layers 0 to 2 without a gap, got none of 1"));
  theirs = DeepSeek(1, "F32");
  theirs.erase("hc_head_scale");
  EXPECT_THAT(Theirs("deepseek-v4", theirs), HasSubstr("expected a tensor hc_head_scale, got none"));
  theirs = Kimi(1, "F32");
  theirs.erase("model.output_attn_res_norm.weight");
  theirs.erase("model.output_attn_res_proj.weight");
  EXPECT_THAT(Theirs("kimi-k3", theirs),
              HasSubstr("model.output_attn_res_proj.weight and model.output_attn_res_norm"));
  theirs = DeepSeek(1, "F32");
  theirs["layers.999999999.hc_attn_fn"] = theirs["layers.0.hc_attn_fn"];
  EXPECT_THAT(Theirs("deepseek-v4", theirs), HasSubstr("0 to 999999999 without a gap, got none of 1"));
}

TEST_F(ConvertRefusalsTest, OtherLayoutsAreRecognised) {
  EXPECT_THAT(Theirs("qwen-gr", DeepSeek(1, "F32")),
              HasSubstr("got none (some look like --from deepseek-v4)"));
  EXPECT_THAT(Theirs("kimi-k3", Qwen(1, "F32")), HasSubstr("--from qwen-gr"));
  EXPECT_THAT(Theirs("deepseek-v4", Mine()), HasSubstr("got none (some have strata's own names: --to)"));
  EXPECT_THAT(Theirs("deepseek-v4", {{"a", {"F32", {1}, "abcd"}}}),
              testing::EndsWith("hc_attn_fn, got none"));
  EXPECT_THAT(Theirs("deepseek-v4", {}), testing::EndsWith("hc_attn_fn, got none"));
  EXPECT_THAT(Ours("kimi-k3", Kimi(1, "F32")),
              HasSubstr("named residual.sites..., got none (some look like --from kimi"));
}

TEST_F(ConvertRefusalsTest, MisshapenTensorsAreNamed) {
  const auto with = [](Tensors tensors, const std::string& name, const std::string& dtype,
                       const std::vector<int64_t>& shape) {
    tensors.at(name) = RandomTensor(dtype == "I32" ? "F32" : dtype, shape, 7);
    tensors.at(name).dtype = dtype;
    return tensors;
  };
  const Tensors deepseek = DeepSeek(2, "F32"), kimi = Kimi(2, "F32"), qwen = Qwen(2, "F32");
  EXPECT_THAT(
      Theirs("deepseek-v4", with(deepseek, "layers.1.hc_ffn_fn", "F32", {15, 15})),
      HasSubstr("layers.1.hc_ffn_fn: expected shape [n^2 + 2n, n d] with n = 3, d = 4, r = 0 (the first "
                "tensors'), got [15, 15]"));
  EXPECT_THAT(Theirs("deepseek-v4", with(deepseek, "layers.0.hc_attn_fn", "F32", {16, 12})),
              HasSubstr("hc_attn_fn: expected shape [n^2 + 2n, n d]"));
  EXPECT_THAT(Theirs("deepseek-v4", with(deepseek, "layers.0.hc_attn_scale", "F32", {3, 1})),
              HasSubstr("hc_attn_scale"));
  EXPECT_THAT(Theirs("deepseek-v4", with(deepseek, "hc_head_fn", "F32", {4, 12})), HasSubstr("hc_head_fn"));
  EXPECT_THAT(Theirs("deepseek-v4", with(deepseek, "layers.1.hc_attn_base", "I32", {15})),
              HasSubstr("layers.1.hc_attn_base: expected F64, F32, F16 or BF16, got I32"));
  EXPECT_THAT(Theirs("kimi-k3", with(kimi, "model.layers.1.mlp_res_proj.weight", "F32", {4})),
              HasSubstr("mlp_res_proj.weight: expected shape [1, d] with n = 0, d = 4"));
  EXPECT_THAT(Theirs("qwen-gr", with(qwen, "model.layers.1.mlp_hyper_connection.input_mix_weight_up.weight",
                                     "F32", {12, 3})),
              HasSubstr("up.weight: expected shape [n d, r] with n = 3, d = 4, r = 2"));
  Tensors none = kimi;
  for (auto& [name, tensor] : none) {
    tensor = {"F32", name.ends_with("proj.weight") ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{0},
              ""};
  }
  EXPECT_THAT(Theirs("kimi-k3", none), HasSubstr("expected shape"));
  // More slots than the mechanism has.
  Tensors wide;
  for (const std::string name : {"layers.0.hc_attn_", "layers.0.hc_ffn_"}) {
    wide[name + "fn"] = RandomTensor("F32", {40 * 40 + 80, 40}, 1);
    wide[name + "base"] = RandomTensor("F32", {40 * 40 + 80}, 1);
    wide[name + "scale"] = RandomTensor("F32", {3}, 1);
  }
  EXPECT_THAT(Theirs("deepseek-v4", wide), HasSubstr("slots: expected an integer from 1 to 32"));
}

TEST_F(ConvertRefusalsTest, ConfigThatContradictsTheTensors) {
  Write("model/model.safetensors", DeepSeek(2, "F32"));
  const auto with = [&](const std::string& config) {
    Put("model/config.json", config);
    return Refusal(From("deepseek-v4", "model", "none"));
  };
  EXPECT_THAT(with(R"({"hc_mult": 4})"), HasSubstr("config.json: hc_mult: expected 3 (the tensors'), got 4"));
  EXPECT_THAT(with(R"({"text_config": {"hidden_size": 5}})"), HasSubstr("hidden_size: expected 4"));
  EXPECT_THAT(with(R"({"num_hidden_layers": 3})"), HasSubstr("layers 0 to 2 without a gap, got none of 2"));
  EXPECT_THAT(with(R"({"num_hidden_layers": 0})"), HasSubstr("expected a number of layers from 1 on, got 0"));
  EXPECT_THAT(with(R"({"num_hidden_layers": -1})"), HasSubstr("from 1 on, got -1"));
  EXPECT_THAT(with(R"({"num_hidden_layers": 1e300})"), HasSubstr("from 1 on, got 1e+300"));
  EXPECT_THAT(with(R"({"hc_eps": "small"})"), HasSubstr("hc_eps: expected a number, got \"small\""));
  EXPECT_THAT(with(R"({"hc_sinkhorn_iters": 0})"), HasSubstr("iterations: expected an integer from 1"));
  EXPECT_THAT(with(R"({"hc_eps": -1})"), HasSubstr("eps: expected a number of at least 0"));
  EXPECT_THAT(with(R"({"model_type": "deepseek_v41"})"),
              HasSubstr("expected a model of deepseek-v4, got deepseek_v41"));
  EXPECT_THAT(with("[1]"), HasSubstr("config.json: expected a JSON object"));
  EXPECT_THAT(with("{"), HasSubstr("config.json: expected a JSON object"));
  // Layers beyond the number of layers predict further tokens: others.
  Put("model/config.json", R"({"num_hidden_layers": 1})");
  const ConvertResult result = Do(From("deepseek-v4", "model"));
  EXPECT_EQ(result.layers, 1);
  EXPECT_EQ(result.others.size(), 6u);
  EXPECT_THAT(result.notes.at(0), HasSubstr("layers from 1 on are beyond"));
}

TEST_F(ConvertRefusalsTest, OurFileMustBeTheLayoutsMechanism) {
  Tensors mine = Mine();
  EXPECT_THAT(Ours("kimi-k3", mine),
              HasSubstr("expected the tensors of attnres for kimi-k3, got those of mhc"));
  EXPECT_THAT(Ours("deepseek-v4", mine, {{"residual", "mhc:form=paper,slots=3,collapse=head"}}),
              HasSubstr("expected form=v4 (all that deepseek-v4 has), got paper"));
  EXPECT_THAT(
      Ours("deepseek-v4", mine, {{"residual", "mhc:slots=4,collapse=head"}}),
      HasSubstr(
          "expected the tensors of mhc:collapse=head,slots=4: residual.sites.0.projection.weight [24, 16], "
          "got [15, 12]"));
  EXPECT_THAT(Ours("deepseek-v4", mine, {{"residual", "mhc:slots=3"}}),
              HasSubstr("got one more: residual.head.bias"));
  EXPECT_THAT(Ours("deepseek-v4", mine, {{"residual", "mhc-lite:slots=3"}}),
              HasSubstr("got those of mhc-lite:slots=3"));
  EXPECT_THAT(Ours("deepseek-v4", mine, {{"residual", "mhc:slot=3"}}), HasSubstr("unknown option"));
  EXPECT_THAT(Ours("deepseek-v4", mine, {{"residual", "nhc"}}), HasSubstr("nhc"));
  EXPECT_THAT(Ours("deepseek-v4", mine, {{"config", "{"}}), HasSubstr("config: expected a JSON object"));
  EXPECT_THAT(Ours("deepseek-v4", mine, {{"config", R"({"residual": 3})"}}),
              HasSubstr("expected a text, got 3"));
  Tensors more = mine;
  more["residual.sites.0.other"] = mine.at("residual.head.bias");
  EXPECT_THAT(Ours("deepseek-v4", more),
              HasSubstr("that deepseek-v4 has a name for, got residual.sites.0.other"));
  mine.erase("residual.sites.3.bias");
  EXPECT_THAT(Ours("deepseek-v4", mine), HasSubstr("expected a tensor residual.sites.3.bias, got none"));
  mine.erase("residual.sites.3.scale");
  mine.erase("residual.sites.3.projection.weight");
  EXPECT_THAT(Ours("deepseek-v4", mine), HasSubstr("residual.sites.3.projection.weight"));  // an odd number
  // mhc-lite and krom have mhc's names.
  Tensors lite;
  lite["residual.sites.0.projection.weight"] = RandomTensor("F32", {12, 12}, 1);
  EXPECT_THAT(Ours("deepseek-v4", lite), HasSubstr("got those of mhc-lite"));
  lite["residual.sites.0.projection.weight"] = RandomTensor("F32", {22, 8}, 1);
  EXPECT_THAT(Ours("deepseek-v4", lite), HasSubstr("got those of krom"));
}

TEST_F(ConvertRefusalsTest, ShardsAreReadAsOneModel) {
  const Tensors theirs = DeepSeek(2, "BF16");
  Tensors first, second;
  std::string map;
  for (const auto& [name, tensor] : theirs) {
    (name < "layers.1" ? first : second)[name] = tensor;
    map +=
        fmt::format("{}\"{}\": \"{}.safetensors\"", map.empty() ? "" : ", ", name, name < "layers.1" ? 1 : 2);
  }
  Write("model/1.safetensors", first);
  Write("model/2.safetensors", second);
  const auto with = [&](const std::string& index) {
    Put("model/model.safetensors.index.json", index);
    return Refusal(From("deepseek-v4", "model", "none"));
  };
  EXPECT_THAT(with(R"({"weight_map": {"a": "../theirs"}})"),
              HasSubstr("a: expected the name of a file in the same folder"));
  EXPECT_THAT(with(R"({"weight_map": {"a": 1}})"), HasSubstr("same folder, got 1"));
  EXPECT_THAT(with(R"({"weight_map": {}})"), HasSubstr("\"weight_map\""));
  EXPECT_THAT(with("no"), HasSubstr("index.json: expected a JSON object"));
  EXPECT_THAT(with(R"({"weight_map": {"a": "3.safetensors"}})"), HasSubstr("3.safetensors"));
  EXPECT_THAT(with(fmt::format("{{\"weight_map\": {{\"lost\": \"1.safetensors\", {}}}}}", map)),
              HasSubstr("1.safetensors: expected a tensor lost (the index lists it), got none"));
  Put("model/model.safetensors.index.json", fmt::format("{{\"weight_map\": {{{}}}}}", map));
  Do(From("deepseek-v4", "model"));
  Do(To("deepseek-v4", "ours"));
  EXPECT_TRUE(Read("back") == theirs);
  second["hc_head_fn"] = theirs.at("hc_head_fn");
  Write("model/2.safetensors", second);
  EXPECT_THAT(Refusal(From("deepseek-v4", "model", "none")),
              HasSubstr("hc_head_fn: expected it in one shard"));
  fs::create_directories(Path("empty"));
  EXPECT_THAT(Refusal(From("deepseek-v4", "empty", "none")), HasSubstr("got neither"));
}

TEST_F(ConvertRefusalsTest, NeverWritesOverWhatItReads) {
  Write("theirs", DeepSeek(1, "F32"));
  const std::string before = ReadFile(Path("theirs"));
  fs::create_symlink(Path("theirs"), Path("link"));
  for (const char* out : {"theirs", "link", "./theirs"}) {
    EXPECT_THAT(ErrorOf([&] { Do(From("deepseek-v4", "theirs", out)); }),
                HasSubstr("expected another file as OUT"));
  }
  EXPECT_EQ(ReadFile(Path("theirs")), before);
  EXPECT_THAT(Refusal(From("deepseek-v5", "theirs", "none")), HasSubstr("did you mean deepseek-v4?"));
  ConvertRequest request = From("deepseek-v4", "theirs", "none");
  Tensors more = DeepSeek(1, "F32");
  more["residual.sites.0.scale"] = more.at("hc_head_base");
  Write("theirs", more);
  request.keep_others = true;
  EXPECT_THAT(Refusal(request),
              HasSubstr("residual.sites.0.scale: expected a name of its own, got it twice"));
  const FullDisk disk(1000);
  EXPECT_THAT(Refusal(From("deepseek-v4", "theirs", "none")), HasSubstr("File too large"));
}

}  // namespace
}  // namespace strata
