#include <nlohmann/json.hpp>

#include "model/convert_testing.h"
#include "tools/testing.h"

namespace strata {
namespace {

using nlohmann::json;

class ConvertCommandTest : public ToolsTest {
 protected:
  void Write(const std::string& name, const Tensors& tensors) const {
    std::vector<TensorView> views;
    for (const auto& [tensor, t] : tensors) {
      views.push_back({tensor, t.dtype, t.shape, t.bytes.data(), static_cast<int64_t>(t.bytes.size())});
    }
    WriteSafetensors(folder_ + "/" + name, views, {}, [](const TensorView& view) { return view.data; });
  }
  void Put(const std::string& name, const std::string& contents) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << contents;
  }
  // A file with this header and as many bytes of data.
  void PutRaw(const std::string& name, uint64_t length, const std::string& header, size_t data) const {
    std::string contents;
    for (int i = 0; i < 8; ++i) contents += static_cast<char>(length >> (8 * i));
    Put(name, contents + header + std::string(data, 'd'));
  }
};

TEST_F(ConvertCommandTest, TableForReadersAndListOfTheRest) {
  Tensors theirs = DeepSeek(1, "F32");
  theirs["embed.weight"] = {"F8_E4M3", {2}, "ab"};
  theirs["layers.0.ffn.w1"] = {"I32", {1}, "abcd"};
  Write("theirs.safetensors", theirs);
  const Result there = Run("convert theirs.safetensors ours.safetensors --from deepseek-v4");
  ASSERT_EQ(there.code, 0) << there.err;
  EXPECT_EQ(there.err,
            "not of the residual connection, not copied (--keep-others copies them unchanged): 2\n"
            "  embed.weight\n  layers.0.ffn.w1\n");
  EXPECT_THAT(there.out,
              HasSubstr("theirs                  ours                                dtype  shape     done\n"
                        "layers.0.hc_attn_fn     residual.sites.0.projection.weight  F32    [15, 12]  "
                        "keep's rows transposed to (to, from)\n"));
  EXPECT_THAT(there.out, HasSubstr("ours.safetensors: tensors 9, layers 1, sites 2, dim 4\n"));
  EXPECT_THAT(there.out, ::testing::EndsWith("--residual mhc:collapse=head,slots=3\n"));
  const Result back = Run("convert ours.safetensors back.safetensors --to deepseek-v4 --prefix model.");
  ASSERT_EQ(back.code, 0) << back.err;
  EXPECT_EQ(back.err, "");
  EXPECT_THAT(back.out, HasSubstr("model.layers.0.hc_ffn_base"));
  EXPECT_THAT(
      back.out,
      HasSubstr("config.json of the model needs:\n  num_hidden_layers 1\n  hidden_size 4\n  hc_mult 3\n"));
  EXPECT_EQ(Run("convert ours.safetensors none.safetensors --to deepseek-v4 --prefix none").code, 0);
}

TEST_F(ConvertCommandTest, TheSameForPrograms) {
  Write("theirs", Kimi(2, "BF16"));
  Put("config.json", R"({"attn_res_block_size": 1})");
  const Result result = Run("convert theirs ours --from kimi-k3 --json --keep-others");
  ASSERT_EQ(result.code, 0) << result.err;
  const json there = json::parse(result.out);
  EXPECT_EQ(there["from"], "kimi-k3");
  EXPECT_EQ(there["residual"], "attnres:block=2");
  EXPECT_EQ(there["block"], 2);
  EXPECT_EQ(there["sites"], 4);
  EXPECT_EQ(there["tensors"].size(), 10u);
  EXPECT_EQ(there["tensors"][0],
            json::parse(R"({"theirs": "model.layers.0.self_attention_res_proj.weight", "dtype": "BF16",
                "ours": "residual.sites.0.query", "their_shape": [1, 4], "our_shape": [4],
                "done": "reshaped to [4]"})"));
  EXPECT_EQ(there["others"], json::array());
  EXPECT_EQ(there["others_copied"], true);
  const json back = json::parse(Run("convert ours back --to kimi-k3 --json").out);
  EXPECT_EQ(back["config"],
            json::parse(R"({"num_hidden_layers": 2, "hidden_size": 4, "attn_res_block_size": 1,
                                            "rms_norm_eps": 1e-06})"));
  EXPECT_FALSE(back.contains("slots"));
}

TEST_F(ConvertCommandTest, ATrainedModelGoesThereAndBack) {
  const std::pair<const char*, const char*> cases[] = {{"mhc:collapse=head,slots=2", "deepseek-v4"},
                                                       {"attnres:block=2", "kimi-k3"},
                                                       {"gated:slots=2,head=mean", "qwen-gr"}};
  for (const auto& [residual, layout] : cases) {
    const std::string name = layout;
    ASSERT_EQ(Train(name, fmt::format("--quiet --residual {}", residual)).code, 0);
    const Result there = Run(fmt::format("convert {0} {0}.theirs --to {0} --keep-others --json", layout));
    ASSERT_EQ(there.code, 0) << there.err;
    EXPECT_GE(json::parse(there.out)["others"].size(), 10u);  // the body
    ASSERT_EQ(Run(fmt::format("convert {0}.theirs {0}.ours --from {0} --keep-others --json {1}", layout,
                              name == "kimi-k3" ? "--block 2" : ""))
                  .code,
              0);
    const SafetensorsFile trained(folder_ + "/" + name + "/model.safetensors"),
        back(folder_ + "/" + name + ".ours");
    ASSERT_EQ(trained.tensors().size(), back.tensors().size());
    for (const TensorView& tensor : trained.tensors()) {
      const TensorView* other = back.Find(tensor.name);
      ASSERT_NE(other, nullptr) << tensor.name;
      EXPECT_EQ(tensor.shape, other->shape);
      EXPECT_EQ(std::memcmp(tensor.data, other->data, static_cast<size_t>(tensor.bytes)), 0) << tensor.name;
    }
  }
}

TEST_F(ConvertCommandTest, WrongRequests) {
  Write("theirs", DeepSeek(1, "F32"));
  ExpectError(Run("convert theirs out"), 2, "expected one of --from and --to, got neither");
  ExpectError(Run("convert theirs out --from kimi-k3 --to qwen-gr"), 2, "got both");
  ExpectError(Run("convert theirs --from deepseek-v4"), 2, "convert: expected IN and OUT, got 1 paths");
  ExpectError(Run("convert --from deepseek-v4"), 2, "got 0 paths");
  ExpectError(Run("convert theirs out more --from deepseek-v4"), 2, "convert");
  ExpectError(Run("convert theirs out --from deepsek"), 2,
              "--from: expected deepseek-v4 or kimi-k3 or qwen-gr, got "
              "deepsek; did you mean deepseek-v4?");
  ExpectError(Run("convert theirs out --to qwen"), 2, "--to: expected");
  ExpectError(Run("convert theirs theirs --from deepseek-v4"), 2, "expected another file as OUT");
  ExpectError(Run("convert theirs ./theirs --from deepseek-v4"), 2, "expected another file as OUT");
  ExpectError(Run("convert theirs out --from deepseek-v4 --block 2"), 2, "--block: expected none");
  ExpectError(Run("convert theirs out --from deepseek-v4 --block -2"), 2, "--block: expected 1 to");
  ExpectError(Run("convert theirs out --from deepseek-v4 --prefix model"), 2,
              "--prefix: expected none or a text that");
  ExpectError(Run("convert theirs out --from deepseek-v4 --keep-other"), 2, "did you mean --keep-others?");
  ExpectError(Run("convert theirs out --from kimi-k3"), 1, "some look like --from deepseek-v4");
  ExpectError(Run("convert theirs no/folder/out --from deepseek-v4"), 1, "no/folder/out");
  ExpectError(Run("convert theirs . --from deepseek-v4"), 1, "strata");
  EXPECT_FALSE(fs::exists(folder_ + "/out"));
}

TEST_F(ConvertCommandTest, HostileFilesAreOneLine) {
  Write("good", DeepSeek(1, "F32"));
  const std::string good = ReadFile(folder_ + "/good");
  const auto refused = [&](const std::string& in, const std::string& part) {
    ExpectError(Run("convert " + in + " made --from deepseek-v4"), 1, part);
    ExpectError(Run("convert " + in + " made --to deepseek-v4"), 1, part);
    EXPECT_FALSE(fs::exists(folder_ + "/made"));
    EXPECT_FALSE(fs::exists(folder_ + "/made.tmp"));
  };
  refused("nothing", "nothing: expected a safetensors file");
  refused(".", "expected model.safetensors or model.safetensors.index.json in it, got neither");
  refused("/dev/null", "/dev/null");
  refused("/dev/zero", "/dev/zero");
  Put("bad", "");
  refused("bad", "got only 0 bytes");
  for (const size_t size : {size_t{7}, size_t{100}, good.size() - 1}) {
    Put("bad", good.substr(0, size));
    refused("bad", "bad: ");
  }
  Put("bad", "PK\3\4" + good);
  refused("bad", "expected a safetensors header");
  const std::string header = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})";
  PutRaw("bad", header.size(), header, 6);
  refused("bad", "it overlaps another tensor");
  PutRaw("bad", uint64_t{1} << 63, header, 6);
  refused("bad", "expected a safetensors header of 2 to ");
  const std::string huge = R"({"layers.0.hc_attn_fn":{"dtype":"F32","shape":[4611686018427387904,2],)"
                           R"("data_offsets":[0,8]}})";
  PutRaw("bad", huge.size(), huge, 8);
  refused("bad", "63 bits");
  const std::string nested = "{\"a\":" + std::string(100'000, '[');
  PutRaw("bad", nested.size(), nested, 0);
  refused("bad", "deeper nesting");
  fs::create_directories(folder_ + "/model/model.safetensors");
  refused("model", "directory");
  Put("config.json", std::string(100'000, '['));
  ExpectError(Run("convert good made --from deepseek-v4"), 1, "config.json: expected a JSON object");
}

}  // namespace
}  // namespace strata
