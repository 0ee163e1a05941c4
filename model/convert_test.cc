#include "model/convert.h"

#include <gmock/gmock.h>

#include "model/convert_testing.h"
#include "residual/mechanism.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The names and shapes that a mechanism declares.
std::map<std::string, std::vector<int64_t>> Declared(const std::string& spec, int sites) {
  std::map<std::string, std::vector<int64_t>> declared;
  const auto mechanism = MakeMechanism<float>(ParseResidual(spec), sites, kD);
  for (const Parameter& p : mechanism->Parameters()) declared["residual." + p.name] = p.shape;
  return declared;
}

std::map<std::string, std::vector<int64_t>> ShapesOf(const Tensors& tensors) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, tensor] : tensors) shapes[name] = tensor.shape;
  return shapes;
}

TEST_F(ConvertTest, ThereAndBackIsEqualByteForByte) {
  for (const std::string dtype : {"F32", "BF16"}) {
    const std::tuple<std::string, Tensors, std::string> cases[] = {
        {"deepseek-v4", DeepSeek(2, dtype), "mhc:collapse=head,slots=3"},
        {"kimi-k3", Kimi(3, dtype), "attnres:block=4"},
        {"qwen-gr", Qwen(2, dtype), "gated:rank=2,slots=3"}};
    for (const auto& [layout, theirs, residual] : cases) {
      Write("theirs", theirs);
      ConvertRequest from = From(layout, "theirs");
      if (layout == "kimi-k3") from.block = 4;
      const ConvertResult there = Do(from);
      EXPECT_EQ(there.residual, residual);
      EXPECT_EQ(there.tensors.size(), theirs.size());
      EXPECT_THAT(there.others, ElementsAre());
      EXPECT_EQ(ShapesOf(Read("ours")), Declared(residual, static_cast<int>(there.sites)));
      const ConvertResult back = Do(To(layout, "ours"));
      EXPECT_EQ(back.residual, residual);
      EXPECT_EQ(back.block, there.block);
      EXPECT_TRUE(Read("back") == theirs) << layout << " " << dtype;
    }
  }
}

TEST_F(ConvertTest, NamesTensorsSiteBySite) {
  Write("theirs", Kimi(2, "F32", "language_model.model."));
  ConvertRequest request = From("kimi-k3", "theirs");
  request.block = 2;
  const ConvertResult result = Do(request);
  EXPECT_EQ(result.prefix, "language_model.model.");
  EXPECT_EQ(result.layers, 2);
  EXPECT_EQ(result.sites, 4);
  std::vector<std::string> pairs;
  for (const ConvertedTensor& t : result.tensors)
    pairs.push_back(t.theirs.substr(21) + " " + t.ours + " " + t.done);
  EXPECT_THAT(pairs,
              ElementsAre("layers.0.self_attention_res_proj.weight residual.sites.0.query reshaped to [4]",
                          "layers.0.self_attention_res_norm.weight residual.sites.0.norm.weight as it is",
                          "layers.0.mlp_res_proj.weight residual.sites.1.query reshaped to [4]",
                          "layers.0.mlp_res_norm.weight residual.sites.1.norm.weight as it is",
                          "layers.1.self_attention_res_proj.weight residual.sites.2.query reshaped to [4]",
                          "layers.1.self_attention_res_norm.weight residual.sites.2.norm.weight as it is",
                          "layers.1.mlp_res_proj.weight residual.sites.3.query reshaped to [4]",
                          "layers.1.mlp_res_norm.weight residual.sites.3.norm.weight as it is",
                          "output_attn_res_proj.weight residual.head.query reshaped to [4]",
                          "output_attn_res_norm.weight residual.head.norm.weight as it is"));
}

TEST_F(ConvertTest, KeepIsTransposed) {
  // n = 2, d = 1. Row 4 + 2 source + destination of fn holds 10 (source + 1) + destination + 1.
  const auto floats = [](const std::vector<float>& values, const std::vector<int64_t>& shape) {
    return Tensor{"F32", shape, {reinterpret_cast<const char*>(values.data()), 4 * values.size()}};
  };
  Tensors theirs;
  for (const std::string sub : {"attn", "ffn"}) {
    theirs["layers.0.hc_" + sub + "_fn"] =
        floats({1, -1, 2, -2, 3, -3, 4, -4, /*comb*/ 11, -11, 12, -12, 21, -21, 22, -22}, {8, 2});
    theirs["layers.0.hc_" + sub + "_base"] = floats({1, 2, 3, 4, 11, 12, 21, 22}, {8});
    theirs["layers.0.hc_" + sub + "_scale"] = floats({5, 6, 7}, {3});
  }
  Write("theirs", theirs);
  EXPECT_EQ(Do(From("deepseek-v4", "theirs")).residual, "mhc:slots=2");
  const Tensors ours = Read("ours");
  EXPECT_THAT(ValuesOf(ours.at("residual.sites.1.projection.weight")),
              ElementsAre(1, -1, 2, -2, 3, -3, 4, -4, /*keep*/ 11, -11, 21, -21, 12, -12, 22, -22));
  EXPECT_THAT(ValuesOf(ours.at("residual.sites.0.bias")), ElementsAre(1, 2, 3, 4, 11, 21, 12, 22));
  EXPECT_THAT(ValuesOf(ours.at("residual.sites.0.scale")), ElementsAre(5, 6, 7));
  EXPECT_EQ(ours.size(), 6u);
}

TEST_F(ConvertTest, OtherTensorsAreListedAndCopiedOnRequest) {
  Tensors theirs = DeepSeek(1, "F32"), others;
  others["embed.weight"] = {"F8_E4M3", {3, 2}, "abcdef"};
  others["layers.0.ffn.experts.0.w1.weight"] = {"F4", {4, 2}, "abcd"};
  others["layers.0.hc_attn_fn_scale"] = {"F8_E8M0", {1}, "x"};
  others["mtp.0.hc_head_fn"] = {"F16", {1}, "xy"};
  theirs.insert(others.begin(), others.end());
  Write("theirs", theirs);
  ConvertRequest request = From("deepseek-v4", "theirs");
  EXPECT_THAT(Do(request).others, ElementsAre("embed.weight", "layers.0.ffn.experts.0.w1.weight",
                                              "layers.0.hc_attn_fn_scale", "mtp.0.hc_head_fn"));
  EXPECT_EQ(Read("ours").size(), 9u);
  request.keep_others = true;
  EXPECT_EQ(Do(request).others.size(), 4u);
  const Tensors ours = Read("ours");
  EXPECT_EQ(ours.size(), 13u);
  for (const auto& [name, tensor] : others) EXPECT_TRUE(ours.at(name) == tensor) << name;
  ConvertRequest back = To("deepseek-v4", "ours");
  back.keep_others = true;
  EXPECT_EQ(Do(back).others.size(), 4u);
  EXPECT_TRUE(Read("back") == theirs);
}

TEST_F(ConvertTest, TransformersSpellingIsReadAndTheReleasedOneWritten) {
  const Tensors released = DeepSeek(2, "BF16", "model.");
  Tensors spelled;
  for (const auto& [name, tensor] : released) {
    std::string other = name;
    for (const auto& [from, to] : {std::pair("hc_attn_", "attn_hc."), std::pair("hc_ffn_", "ffn_hc."),
                                   std::pair("hc_head_", "hc_head.hc_")}) {
      const size_t at = other.find(from);
      if (at != std::string::npos) other.replace(at, std::string(from).size(), to);
    }
    spelled[other] = tensor;
  }
  ASSERT_TRUE(spelled.contains("model.layers.1.ffn_hc.base"));
  ASSERT_TRUE(spelled.contains("model.hc_head.hc_scale"));
  Write("theirs", spelled);
  EXPECT_EQ(Do(From("deepseek-v4", "theirs")).prefix, "model.");
  Do(To("deepseek-v4", "ours"));
  EXPECT_TRUE(Read("back") == released);
  spelled["model.layers.0.hc_attn_fn"] = released.at("model.layers.0.hc_attn_fn");
  Write("theirs", spelled);
  EXPECT_THAT(Refusal(From("deepseek-v4", "theirs", "none")),
              HasSubstr("expected one of model.layers.0.attn_hc.fn and model.layers.0.hc_attn_fn, got both"));
}

TEST_F(ConvertTest, PrefixesAreFoundOrChosen) {
  Tensors both = Qwen(1, "F32", "model.");
  const Tensors second = Qwen(1, "F32", "mtp."), third = Qwen(2, "F32", "");
  both.insert(second.begin(), second.end());
  Write("theirs", both);
  EXPECT_EQ(Do(From("qwen-gr", "theirs")).prefix, "model.");  // one that releases use goes first
  EXPECT_EQ(Do(From("qwen-gr", "theirs")).others.size(), second.size());
  ConvertRequest request = From("qwen-gr", "theirs");
  request.prefix = "mtp.";
  EXPECT_EQ(Do(request).tensors[0].theirs, "mtp.layers.0.attn_hyper_connection.hc_norm.weight");
  Write("theirs", second);
  EXPECT_EQ(Do(From("qwen-gr", "theirs")).prefix, "mtp.");
  request = To("qwen-gr", "ours");
  request.prefix = "decoder.";
  EXPECT_EQ(Do(request).tensors[0].theirs, "decoder.layers.0.attn_hyper_connection.hc_norm.weight");
  both.insert(third.begin(), third.end());
  Write("theirs", both);
  EXPECT_THAT(Refusal(From("qwen-gr", "theirs", "none")),
              HasSubstr("under one prefix, got \"\" and model. (--prefix chooses)"));
  request = From("qwen-gr", "theirs", "none");
  request.prefix = "other.";
  EXPECT_THAT(Refusal(request),
              HasSubstr("such as other.layers.0.attn_hyper_connection.hc_norm.weight, got none"));
}

TEST_F(ConvertTest, BlocksCountSublayersHereAndLayersThere) {
  Write("model/model.safetensors", Kimi(5, "F32"));
  EXPECT_THAT(Refusal(From("kimi-k3", "model", "none")),
              HasSubstr("--block: expected the sublayers of a block"));
  Put("model/config.json", R"({"model_type": "kimi_k3", "text_config":
      {"attn_res_block_size": 2, "rms_norm_eps": 1e-05, "num_hidden_layers": 5, "hidden_size": 4}})");
  ConvertResult result = Do(From("kimi-k3", "model"));
  EXPECT_EQ(result.block, 4);
  EXPECT_EQ(result.residual, "attnres:block=4,eps=1e-05");
  const SafetensorsHeader ours(Path("ours"), Dtypes::kAll);
  EXPECT_EQ(ours.metadata(), (std::map<std::string, std::string>{{"format", "1"},
                                                                 {"residual", "attnres:block=4,eps=1e-05"},
                                                                 {"layout", "kimi-k3"},
                                                                 {"prefix", "model."},
                                                                 {"block", "4"}}));
  result = Do(To("kimi-k3", "ours"));
  EXPECT_EQ(result.block, 4);
  EXPECT_EQ(result.config, (decltype(result.config){{"num_hidden_layers", "5"},
                                                    {"hidden_size", "4"},
                                                    {"attn_res_block_size", "2"},
                                                    {"rms_norm_eps", "1e-05"}}));
  EXPECT_EQ(SafetensorsHeader(Path("back"), Dtypes::kAll).metadata().at("format"), "pt");

  ConvertRequest other = From("kimi-k3", "model", "none");
  other.block = 2;
  EXPECT_THAT(Refusal(other), HasSubstr("--block: expected 4 sublayers"));
  other = From("kimi-k3", "model/model.safetensors");
  other.block = 4;
  EXPECT_EQ(Do(other).block, 4);
  Write("odd", Read("ours"), {{"residual", "attnres:block=3"}});
  EXPECT_THAT(Refusal(To("kimi-k3", "odd", "none")), HasSubstr("block: expected a multiple of 2"));
  Write("theirs", DeepSeek(1, "F32"));
  other = From("deepseek-v4", "theirs", "none");
  other.block = 4;
  EXPECT_THAT(Refusal(other), HasSubstr("--block: expected none (mhc has no blocks), got 4"));
}

TEST_F(ConvertTest, ProgressCountsTheBytesWritten) {
  Write("theirs", DeepSeek(1, "F32"));
  std::vector<int64_t> done;
  int64_t all = 0;
  Convert(From("deepseek-v4", "theirs"), [&](int64_t d, int64_t total) {
    done.push_back(d);
    all = total;
  });
  EXPECT_EQ(done.size(), 9u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), all);
  EXPECT_EQ(all, 4 * (2 * (15 * 12 + 15 + 3) + 3 * 12 + 3 + 1));
}

}  // namespace
}  // namespace strata
