#include "model/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/random.h"
#include "base/testing.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Korean() { return ReadFile(std::string(STRATA_SOURCE_DIR) + "/docs/examples/text/korean.txt"); }

// Words drawn from a short list, so that pairs repeat.
std::string English(int words) {
  const std::vector<std::string> list = {"the", "river", "runs", "under", "a", "bridge", "and", "stone"};
  Random random(7);
  std::string text;
  for (int i = 0; i < words; ++i) text += list[random.Below(list.size())] + (i % 9 == 8 ? ".\r\n" : " ");
  return text;
}

const Tokenizer& Bpe() {
  static const std::unique_ptr<Tokenizer> tokenizer = TrainBpe(Korean() + English(3000), 400);
  return *tokenizer;
}

// Text in which all that could get lost or rewritten occurs.
std::string Awkward() {
  using namespace std::string_literals;
  return "  two  blanks\t\ttabs\r\n\r\n\n a\0b \xE2\x96\x81 \xE2\x96\x85\xE2\x81\x87 <0x0A><unk><s> "
         "\xEF\xAC\x81 "
         "\xE3\x80\x80\xC2\xA0\xEF\xBB\xBF\xF0\x9F\x99\x82 e\xCC\x81 \xEF\xBF\xBD\x01\x7F  "s;
}

std::string Streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += tokenizer.Piece(id);
  return text;
}

TEST(ByteTokenizer, TakesEveryByte) {
  const auto bytes = MakeByteTokenizer();
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const std::vector<int32_t> ids = bytes->Encode(all);
  ASSERT_EQ(ids.size(), 256u);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[static_cast<size_t>(i)], i);
  EXPECT_EQ(bytes->Decode(ids), all);
  EXPECT_EQ(Streamed(*bytes, ids), all);
  EXPECT_EQ(bytes->vocab(), 256);
  EXPECT_EQ(ErrorOf([&] { bytes->Decode({65, 256}); }), "token: expected an id below 256, got 256");
  EXPECT_EQ(ErrorOf([&] { bytes->Piece(-1); }), "token: expected an id below 256, got -1");
}

TEST(IdTokenizer, PrintsIdsAndRefusesText) {
  const auto ids = MakeIdTokenizer(50257);
  EXPECT_EQ(ids->vocab(), 50257);
  EXPECT_EQ(ids->name(), "ids");
  EXPECT_EQ(ids->Decode({1, 22, 333}), "1 22 333");
  EXPECT_THAT(ErrorOf([&] { ids->Encode("text"); }), HasSubstr("ready-made ids"));
  EXPECT_THAT(ErrorOf([&] { MakeIdTokenizer(-1); }), HasSubstr("got -1"));
}

TEST(BpeTokenizer, GivesBackEveryText) {
  for (const std::string& text : {Awkward(), Korean(), English(200), std::string(), std::string(" "),
                                  std::string("\r\n"), Awkward() + Awkward()}) {
    const std::vector<int32_t> ids = Bpe().Encode(text);
    EXPECT_EQ(Bpe().Decode(ids), text);
    EXPECT_EQ(Streamed(Bpe(), ids), text);
  }
}

TEST(BpeTokenizer, GivesBackRandomText) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (uint64_t i = random.Below(60); i > 0; --i) {
      const std::string awkward = Awkward();
      std::string part = awkward.substr(random.Below(awkward.size()), random.Below(9));
      if (FindInvalidUtf8(part) >= 0) part = "\xED\x95\x9C";
      text += part;
    }
    ASSERT_EQ(Bpe().Decode(Bpe().Encode(text)), text) << "round " << round;
  }
}

TEST(BpeTokenizer, CompressesWhatItWasTrainedOn) {
  EXPECT_EQ(Bpe().vocab(), 400);
  EXPECT_EQ(Bpe().name(), "bpe");
  const std::string text = English(500);
  EXPECT_LT(Bpe().Encode(text).size() * 3, text.size());
  EXPECT_EQ(Bpe().Encode("\n").size(), 1u);
  EXPECT_EQ(Bpe().Encode(" river").size(), 1u);
}

TEST(BpeTokenizer, LongLinesAreTrainedOnAndGivenBack) {
  std::string line;
  while (line.size() < 1'000'000) line += "onevery longline ";
  const auto tokenizer = TrainBpe(line, 290);
  const std::vector<int32_t> ids = tokenizer->Encode(line);
  EXPECT_LT(ids.size() * 4, line.size());  // a dropped line would leave single bytes
  EXPECT_TRUE(tokenizer->Decode(ids) == line);
  std::string solid;  // no place to cut but between characters
  while (solid.size() < 1'000'000) solid += "\xED\x95\x9C\xEA\xB8\x80x";
  EXPECT_TRUE(Bpe().Decode(Bpe().Encode(solid)) == solid);
}

TEST(BpeTokenizer, CutsOfLongLinesDoNotShow) {
  const std::string half = English(4000);
  std::string line;
  for (const char c : half) line += c == '\r' || c == '\n' ? ' ' : c;
  std::vector<int32_t> parts;
  for (size_t begin = 0; begin < line.size();) {
    size_t end = line.find(' ', begin + 1);
    if (end == std::string::npos) end = line.size();
    for (const int32_t id : Bpe().Encode(line.substr(begin, end - begin))) parts.push_back(id);
    begin = end;
  }
  EXPECT_GT(line.size(), 16'000u);
  EXPECT_EQ(Bpe().Encode(line), parts);
}

TEST(BpeTokenizer, TrainingIsDeterministicAndQuiet) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  const auto again = TrainBpe(Korean() + English(3000), 400), other = TrainBpe(English(3000), 300);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(again->fingerprint(), Bpe().fingerprint());
  EXPECT_EQ(again->fingerprint().size(), 16u);
  EXPECT_NE(other->fingerprint(), Bpe().fingerprint());
}

TEST(BpeTokenizer, SavesAndLoads) {
  const std::string path = testing::TempDir() + "strata-tokenizer-test.model";
  Bpe().Save(path);
  const auto loaded = LoadTokenizer(path);
  EXPECT_EQ(loaded->fingerprint(), Bpe().fingerprint());
  EXPECT_EQ(loaded->Encode(Awkward()), Bpe().Encode(Awkward()));
  std::filesystem::remove(path);
}

TEST(BpeTokenizer, NamesTheOffsetOfInvalidUtf8) {
  EXPECT_EQ(ErrorOf([] { Bpe().Encode("abc\xFF"); }),
            "text: expected valid UTF-8, got the byte 0xff at offset 3");
  EXPECT_THAT(ErrorOf([] { TrainBpe("\xED\x95\x9C\xED\x95", 300); }), HasSubstr("0xed at offset 3"));
}

TEST(BpeTokenizer, SmallVocabularyFitsEveryScript) {
  const auto tokenizer = TrainBpe(Korean(), 260);  // far fewer ids than Korean characters
  EXPECT_EQ(tokenizer->vocab(), 260);
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(Korean())), Korean());
}

TEST(BpeTokenizer, TooLargeVocabularyNamesTheLargest) {
  const std::string message = ErrorOf([] { TrainBpe(English(300), 50000); });
  int largest = 0;
  ASSERT_EQ(sscanf(message.c_str(), "vocab: expected at most %d for this text, got 50000", &largest), 1)
      << message;
  EXPECT_EQ(TrainBpe(English(300), largest)->vocab(), largest);
  EXPECT_NE(ErrorOf([&] { TrainBpe(English(300), largest + 1); }), "");
  EXPECT_THAT(ErrorOf([] { TrainBpe("\n\n\n", 300); }), HasSubstr("got 3 bytes"));
  EXPECT_THAT(ErrorOf([] { TrainBpe("a", 300); }), HasSubstr("expected"));
  EXPECT_THAT(ErrorOf([] { TrainBpe("abc", 12); }), HasSubstr("vocab: expected 260"));
}

TEST(LoadTokenizer, ErrorsNameTheFile) {
  EXPECT_EQ(LoadTokenizer("bytes")->name(), "bytes");
  EXPECT_EQ(LoadTokenizer("ids")->vocab(), 0);
  EXPECT_THAT(ErrorOf([] { LoadTokenizer("/no/such.model"); }),
              AllOf(HasSubstr("/no/such.model"), HasSubstr("No such")));
  EXPECT_THAT(ErrorOf([] { LoadTokenizer("/"); }), HasSubstr("got a folder"));
  EXPECT_THAT(ErrorOf([] { LoadTokenizer(""); }), HasSubstr("got \"\""));
  const std::string path = testing::TempDir() + "strata-no-model.model";
  for (const std::string& contents : {std::string(), std::string("not a model"), std::string(1000, '\x0A')}) {
    WriteFileAtomically(path, contents);
    testing::internal::CaptureStderr();
    EXPECT_EQ(ErrorOf([&] { LoadTokenizer(path); }),
              path + ": expected a SentencePiece model, got another kind of file");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }
  std::filesystem::remove(path);
}

TEST(FindInvalidUtf8, FollowsTheStandard) {
  EXPECT_EQ(FindInvalidUtf8(""), -1);
  EXPECT_EQ(FindInvalidUtf8("a\xC2\x80\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xF0\x90\x80\x80\xF4\x8F\xBF\xBF"),
            -1);
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC2", "\xE1\x80", "\xF1\x80\x80", "\xC2z", "\xE1\x80z"}) {
    EXPECT_EQ(FindInvalidUtf8(std::string("ab") + bad), 2) << bad;
  }
}

}  // namespace
}  // namespace strata
