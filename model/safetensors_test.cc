#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>

#include "base/random.h"
#include "base/testing.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class SafetensorsTest : public FolderTest {
 protected:
  // A file with this header length, header and data.
  std::string PutRaw(uint64_t length, const std::string& header, const std::string& data) const {
    std::string contents;
    for (int i = 0; i < 8; ++i) contents += static_cast<char>(length >> (8 * i));
    return Put("raw.safetensors", contents + header + data);
  }
  // What the reader says of a file with this header and 16 bytes of data.
  std::string Refusal(const std::string& header, const std::string& data = std::string(16, 'd')) const {
    const std::string path = PutRaw(header.size(), header, data);
    const std::string message = ErrorOf([&] { SafetensorsFile file(path); });
    EXPECT_TRUE(message.empty() || message.starts_with(path + ": ")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 400u);
    return message;
  }
};

// The header of one tensor.
std::string One(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

struct Sample {
  std::array<float, 6> floats = {1, -2, 3.5f, 0, 5, 6};
  std::array<int64_t, 1> count = {-7};
  std::array<uint16_t, 3> halves = {1, 2, 3};
  std::array<double, 2> doubles = {0.1, 0.2};
  std::vector<TensorView> Tensors() const {
    return {{"halves", "BF16", {3}, halves.data(), 6},
            {"floats", "F32", {2, 3}, floats.data(), 24},
            {"none", "F32", {0, 5}, nullptr, 0},
            {"count", "I64", {1}, count.data(), 8},
            {"doubles", "F64", {}, doubles.data(), 8}};
  }
};

TEST_F(SafetensorsTest, ReadsBackWhatWasWritten) {
  const Sample sample;
  const std::map<std::string, std::string> metadata = {{"step", "12"}, {"config", "{\"a\": \"\u00e9\"}"}};
  WriteSafetensors(Path("a"), sample.Tensors(), metadata);
  const SafetensorsFile file(Path("a"));
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), 5u);
  for (const TensorView& written : sample.Tensors()) {
    const TensorView* read = file.Find(written.name);
    ASSERT_NE(read, nullptr) << written.name;
    EXPECT_EQ(read->dtype, written.dtype);
    EXPECT_EQ(read->shape, written.shape);
    ASSERT_EQ(read->bytes, written.bytes);
    const auto bytes = static_cast<size_t>(written.bytes);
    EXPECT_TRUE(bytes == 0 || std::memcmp(read->data, written.data, bytes) == 0) << written.name;
    // Every tensor can be read in place.
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read->data) % (written.dtype == "F32" ? 4 : 2), 0u);
  }
  EXPECT_EQ(file.Find("float"), nullptr);
}

TEST_F(SafetensorsTest, LayoutIsThatOfTheFormat) {
  const Sample sample;
  WriteSafetensors(Path("a"), {sample.Tensors()[0], sample.Tensors()[3]}, {{"k", "v"}});
  const std::string contents = ReadFile(Path("a"));
  const std::string header =
      R"({"__metadata__":{"k":"v"},"count":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("halves":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}})";
  const size_t padded = (header.size() + 7) / 8 * 8;
  EXPECT_EQ(static_cast<unsigned char>(contents[0]), padded);
  EXPECT_EQ(contents.substr(1, 7), std::string(7, '\0'));
  EXPECT_EQ(contents.substr(8, padded), header + std::string(padded - header.size(), ' '));
  EXPECT_EQ(contents.substr(8 + padded), std::string("\xF9\xFF\xFF\xFF\xFF\xFF\xFF\xFF\1\0\2\0\3\0", 14));
}

TEST_F(SafetensorsTest, FullDiskKeepsTheOldFile) {
  const Sample sample;
  WriteSafetensors(Path("a"), sample.Tensors(), {{"step", "1"}});
  const std::string old = ReadFile(Path("a"));
  const std::vector<float> large(100'000);
  std::string message;
  {
    const FullDisk disk(10'000);
    message = ErrorOf([&] {
      WriteSafetensors(Path("a"), {{"a", "F32", {100'000}, large.data(), 400'000}}, {});
    });
  }
  EXPECT_THAT(message, AllOf(HasSubstr(Path("a")), HasSubstr("File too large")));
  EXPECT_EQ(ReadFile(Path("a")), old);
  EXPECT_FALSE(fs::exists(Path("a.tmp")));
  EXPECT_THAT(ErrorOf([&] { WriteSafetensors(Path("no/folder"), {}, {}); }), HasSubstr("No such file"));
}

TEST_F(SafetensorsTest, WriterRefusesWhatItsReaderWould) {
  const float f[2] = {1, 2};
  const auto refusal = [&](const std::vector<TensorView>& tensors) {
    const std::string message = ErrorOf([&] { WriteSafetensors(Path("w"), tensors, {}); });
    EXPECT_FALSE(fs::exists(Path("w")));
    return message;
  };
  EXPECT_THAT(refusal({{"a", "F32", {3}, f, 8}}), HasSubstr("a: expected 12 bytes, got 8"));
  EXPECT_THAT(refusal({{"a", "F16", {2}, f, 4}}), HasSubstr("got \"F16\""));
  EXPECT_THAT(refusal({{"a", "F32", {2}, f, 8}, {"a", "F32", {2}, f, 8}}), HasSubstr("twice"));
  EXPECT_THAT(refusal({{"__metadata__", "F32", {2}, f, 8}}), HasSubstr("__metadata__"));
  EXPECT_THAT(refusal({{"\xFF", "F32", {2}, f, 8}}), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal({{"a", "F32", {int64_t{1} << 40, int64_t{1} << 40}, f, 8}}), HasSubstr("63 bits"));
}

TEST_F(SafetensorsTest, RefusesBrokenFiles) {
  EXPECT_THAT(ErrorOf([&] { SafetensorsFile file(Path("none")); }), HasSubstr("No such file"));
  EXPECT_THAT(ErrorOf([&] { SafetensorsFile file(folder_); }), HasSubstr("directory"));
  for (const std::string& contents : {std::string(), std::string("abc"), std::string(8, '\0')}) {
    const std::string path = Put("short", contents);
    EXPECT_THAT(ErrorOf([&] { SafetensorsFile file(path); }), HasSubstr("got only"));
  }
  const std::string good = One("\"F32\"", "[4]", "[0,16]");
  EXPECT_EQ(Refusal(good), "");
  for (const uint64_t length : {uint64_t{0}, uint64_t{1}, uint64_t{good.size() + 17}, uint64_t{100'000'001},
                                uint64_t{1} << 62, uint64_t{1} << 63, ~uint64_t{0}}) {
    const std::string path = PutRaw(length, good, std::string(16, 'd'));
    EXPECT_THAT(ErrorOf([&] { SafetensorsFile file(path); }), HasSubstr("header of 2 to")) << length;
  }
  EXPECT_THAT(Refusal(good, std::string(15, 'd')), HasSubstr("inside the file's 15 bytes, got 0 to 16"));
  EXPECT_THAT(Refusal(good, std::string(17, 'd')), HasSubstr("expected 16 bytes of tensors, got 17"));
  EXPECT_THAT(Refusal("{}"), HasSubstr("expected 0 bytes of tensors, got 16"));
  EXPECT_EQ(Refusal("{}   ", ""), "");
}

TEST_F(SafetensorsTest, RefusesOtherHeaders) {
  EXPECT_THAT(Refusal("PK\3\4 a zip file"), HasSubstr("expected a safetensors header in JSON"));
  EXPECT_THAT(Refusal("{\"a\":"), HasSubstr("in JSON"));
  EXPECT_THAT(Refusal("{} x"), HasSubstr("in JSON"));
  EXPECT_THAT(Refusal("{\"\xFF\":1}"), HasSubstr("in JSON"));
  EXPECT_THAT(Refusal("[1,2]"), HasSubstr("in JSON"));
  EXPECT_THAT(Refusal("{\"a\":" + std::string(2'000'000, '[')), HasSubstr("nesting"));
  EXPECT_THAT(Refusal("{\"a\":{\"b\":{\"c\":{\"d\":1}}}}"), HasSubstr("nesting"));
  EXPECT_THAT(Refusal("{\"a\":1}"), HasSubstr("a: expected a key \"dtype\""));
  EXPECT_THAT(Refusal("{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}"),
              HasSubstr("expected a key \"data_offsets\""));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"more":1}})"),
              HasSubstr("expected 3 keys, got 4"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                      R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})"),
              HasSubstr("\"a\" twice"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]}})"),
              HasSubstr("\"dtype\" twice"));
  EXPECT_THAT(Refusal("{\"__metadata__\":{\"step\":3}}", ""), HasSubstr("step: expected text, got 3"));
  EXPECT_THAT(Refusal("{\"__metadata__\":[]}", ""), HasSubstr("__metadata__: expected an object"));
}

TEST_F(SafetensorsTest, RefusesWrongTensors) {
  const std::string f32 = "\"F32\"";
  EXPECT_THAT(Refusal(One("\"F16\"", "[8]", "[0,16]")), HasSubstr("a: expected a dtype"));
  EXPECT_THAT(Refusal(One("7", "[4]", "[0,16]")), HasSubstr("dtype: expected text, got 7"));
  for (const char* shape : {"[-4]", "[4.0]", "[\"4\"]", "4", "null", "[9223372036854775808]",
                            "[18446744073709551616]", "[[4]]", "[true]"}) {
    EXPECT_THAT(Refusal(One(f32, shape, "[0,16]")),
                testing::AnyOf(HasSubstr("shape: expected sizes"), HasSubstr("nesting")))
        << shape;
  }
  EXPECT_THAT(Refusal(One(f32, "[4294967296,4294967296]", "[0,16]")), HasSubstr("63 bits"));
  EXPECT_THAT(Refusal(One(f32, "[4611686018427387905]", "[0,4]")), HasSubstr("63 bits"));
  EXPECT_THAT(Refusal(One(f32, "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4]", "[0,16]")), HasSubstr("dimensions"));
  EXPECT_THAT(Refusal(One(f32, "[3]", "[0,16]")), HasSubstr("a: expected 12 bytes for F32 [3], got 16"));
  EXPECT_THAT(Refusal(One(f32, "[4]", "[16,0]")), HasSubstr("got 16 to 0"));
  EXPECT_THAT(Refusal(One(f32, "[4]", "[16,32]")), HasSubstr("got 16 to 32"));
  EXPECT_THAT(Refusal(One(f32, "[4]", "[0,9223372036854775807]")), HasSubstr("inside the file"));
  EXPECT_THAT(Refusal(One(f32, "[4]", "[0,8,16]")), HasSubstr("expected 2 numbers, got 3"));
  EXPECT_THAT(Refusal(One(f32, "[4]", "[-16,0]")), HasSubstr("data_offsets: expected sizes"));
  EXPECT_THAT(Refusal(One(f32, "[3]", "[2,14]")), HasSubstr("aligned to 4 bytes, got offset 2"));
  EXPECT_THAT(Refusal(One(f32, "[3]", "[4,16]")), HasSubstr("there is a gap"));
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)" + first +
           R"(},"b":{"dtype":"F32","shape":[2],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(Refusal(two("[8,16]", "[0,8]")), "");
  EXPECT_THAT(Refusal(two("[0,8]", "[4,12]")), HasSubstr("b: expected data from byte 8 (it overlaps"));
  EXPECT_THAT(Refusal(two("[0,8]", "[0,8]")), HasSubstr("it overlaps"));
}

TEST_F(SafetensorsTest, PassesOnEveryDtypeOfTheFormat) {
  const std::string bytes = "abcdefghijklmnopqrstuvwx";  // 24: whole elements of each
  std::vector<TensorView> tensors;
  for (const auto& [dtype, bits] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"BOOL", 8},    {"U8", 8},      {"I8", 8},         {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},
           {"I16", 16},    {"U16", 16},    {"F16", 16},       {"BF16", 16},   {"I32", 32},    {"U32", 32},
           {"F32", 32},    {"F64", 64},    {"I64", 64},       {"U64", 64},    {"C64", 64},    {"F4", 4},
           {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8}}) {
    tensors.push_back({dtype, dtype, {192 / bits}, nullptr, 24});
  }
  std::vector<std::string> asked;
  WriteSafetensors(Path("a"), tensors, {}, [&](const TensorView& tensor) {
    asked.push_back(tensor.name);
    return bytes.data();
  });
  EXPECT_EQ(asked.size(), tensors.size());
  const SafetensorsHeader header(Path("a"), Dtypes::kAll);
  ASSERT_EQ(header.tensors().size(), tensors.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    EXPECT_EQ(header.tensors()[i].name, asked[i]);
    std::string read(24, ' ');
    header.Read(24 * static_cast<int64_t>(i), 24, read.data());
    EXPECT_EQ(read, bytes);
  }
  EXPECT_THAT(ErrorOf([&] { SafetensorsFile file(Path("a")); }), HasSubstr("expected a dtype of F32, F64"));
  const std::string odd = One("\"F4\"", "[3]", "[0,2]");
  EXPECT_THAT(ErrorOf([&] { SafetensorsHeader file(PutRaw(odd.size(), odd, "ab"), Dtypes::kAll); }),
              HasSubstr("expected whole bytes, got a shape of 12 bits"));
  const std::string other = One("\"F7\"", "[2]", "[0,2]");
  EXPECT_THAT(ErrorOf([&] { SafetensorsHeader file(PutRaw(other.size(), other, "ab"), Dtypes::kAll); }),
              HasSubstr("expected a dtype of the safetensors format, got \"F7\""));
  // Other writers do not align.
  const std::string unaligned = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                R"("b":{"dtype":"F16","shape":[1],"data_offsets":[1,3]}})";
  EXPECT_EQ(ErrorOf([&] { SafetensorsHeader(PutRaw(unaligned.size(), unaligned, "abc"), Dtypes::kAll); }),
            "");
}

TEST_F(SafetensorsTest, DamagedFilesNeverCrash) {
  const Sample sample;
  WriteSafetensors(Path("a"), sample.Tensors(), {{"step", "1"}});
  const std::string good = ReadFile(Path("a"));
  Random random(5);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bad = good;
    for (uint64_t i = 1 + random.Below(3); i > 0; --i)
      bad[random.Below(350)] = static_cast<char>(random.Next());
    if (random.Below(4) == 0) bad.resize(random.Below(bad.size()));
    const std::string path = Path("bad");
    std::ofstream(path, std::ios::binary) << bad;
    refused += !ErrorOf([&] { SafetensorsFile file(path); }).empty();
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace strata
