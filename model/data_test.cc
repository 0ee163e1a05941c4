#include "model/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/testing.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

using CorpusTest = FolderTest;
using ShardTest = FolderTest;

std::string Decoded(const Tokenizer& tokenizer, const Corpus& corpus) {
  return tokenizer.Decode(corpus.train) + tokenizer.Decode(corpus.validation);
}

std::string Sentences(size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) text += "Line " + std::to_string(i * 7919) + " of a text.\n";
  text.resize(bytes);
  return text;
}

int64_t Sum(const std::vector<int32_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

TEST_F(CorpusTest, OneKilobyteIsEnoughForSmallContexts) {
  const auto bytes = MakeByteTokenizer();
  const std::string text = Sentences(1024), path = Put("a.txt", text);
  for (const int64_t context : {1, 64, 100, 128, 500}) {
    const Corpus corpus = LoadCorpus({path}, *bytes, context);
    EXPECT_EQ(Decoded(*bytes, corpus), text);
    EXPECT_GE(std::ssize(corpus.validation), std::max<int64_t>(102, context + 1));
    EXPECT_LE(std::ssize(corpus.validation), std::max<int64_t>(102 + 64, context + 1));
    EXPECT_GE(std::ssize(corpus.train), context + 1);
    EXPECT_EQ(corpus.validation_bytes, std::vector<int32_t>(corpus.validation.size(), 1));
    EXPECT_EQ(corpus.vocab, 256);
    EXPECT_EQ(corpus.tokenizer_name, "bytes");
    EXPECT_EQ(corpus.fingerprint, "bytes");
  }
}

TEST_F(CorpusTest, TooShortTextNamesBothNumbers) {
  const auto bytes = MakeByteTokenizer();
  EXPECT_EQ(ErrorOf([&] { LoadCorpus({Put("a", std::string(129, 'x'))}, *bytes, 64); }),
            "text: expected at least 130 tokens (for context 64), got 129");
  const Corpus corpus = LoadCorpus({Put("a", std::string(130, 'x'))}, *bytes, 64);
  EXPECT_EQ(corpus.train.size(), 65u);
  EXPECT_EQ(corpus.validation.size(), 65u);
  EXPECT_THAT(ErrorOf([&] { LoadCorpus({Path("a")}, *bytes, 0); }),
              HasSubstr("context: expected at least 1"));
}

TEST_F(CorpusTest, SplitIsTheSameTextForEveryTokenizer) {
  const std::string korean = ReadFile(std::string(STRATA_SOURCE_DIR) + "/docs/examples/text/korean.txt");
  std::string text;
  for (int i = 0; i < 4; ++i) text += korean;
  const auto bytes = MakeByteTokenizer(), bpe = TrainBpe(text, 500);
  const std::string path = Put("korean.txt", text);
  const Corpus by_byte = LoadCorpus({path}, *bytes, 16), by_bpe = LoadCorpus({path}, *bpe, 16);
  const std::string held_out = bpe->Decode(by_bpe.validation);
  EXPECT_EQ(held_out, bytes->Decode(by_byte.validation));
  EXPECT_EQ(Decoded(*bpe, by_bpe), text);
  EXPECT_EQ(FindInvalidUtf8(held_out), -1);
  EXPECT_GE(held_out.size(), text.size() / 10);
  EXPECT_LE(held_out.size(), text.size() / 10 + 64);
  EXPECT_LT(by_bpe.validation.size() * 2, by_byte.validation.size());
  ASSERT_EQ(by_bpe.validation_bytes.size(), by_bpe.validation.size());
  EXPECT_EQ(Sum(by_bpe.validation_bytes), std::ssize(held_out));
  EXPECT_EQ(by_bpe.vocab, 500);
  EXPECT_EQ(by_bpe.fingerprint, bpe->fingerprint());
}

TEST_F(CorpusTest, ShortBpeTextIsSplitBetweenTokens) {
  const std::string text = Sentences(1024);
  const auto bpe = TrainBpe(text, 320);
  const int64_t tokens = std::ssize(bpe->Encode(text)), context = tokens / 2 - 1;
  const Corpus corpus = LoadCorpus({Put("a", text)}, *bpe, context);
  EXPECT_EQ(Decoded(*bpe, corpus), text);
  EXPECT_EQ(std::ssize(corpus.validation), context + 1);
  EXPECT_EQ(ErrorOf([&] { LoadCorpus({Path("a")}, *bpe, context + 1); }),
            fmt::format("text: expected at least {} tokens (for context {}), got {}", 2 * (context + 2),
                        context + 1, tokens));
}

TEST_F(CorpusTest, KeepsLineEndsAndLongLines) {
  std::string text;
  while (text.size() < 1'000'000) text += "word " + std::to_string(text.size() % 977) + " ";
  text = "first\r\n\r\n\tsecond  \r\n" + text + "\r\nlast\r\n";
  const auto bytes = MakeByteTokenizer(), bpe = TrainBpe(text, 400);
  const std::string path = Put("crlf.txt", text);
  for (const Tokenizer* tokenizer : {bytes.get(), bpe.get()}) {
    EXPECT_TRUE(Decoded(*tokenizer, LoadCorpus({path}, *tokenizer, 64)) == text);
  }
}

TEST_F(CorpusTest, FoldersAreReadRecursivelyInOrder) {
  Put("b.txt", "two\n");
  Put("a/z.txt", "one");  // no line end: one is added before the next file
  Put("c/d/e.md", "three\n");
  Put(".hidden", "no");
  Put(".git/config", "no");
  Put("c/empty", "");
  EXPECT_EQ(ReadTexts({folder_}), "one\ntwo\nthree\n");
  EXPECT_EQ(ReadTexts({Path("b.txt"), Path("a")}), "two\none");
  EXPECT_EQ(ReadTexts({Path(".hidden")}), "no");  // asked for by name
}

TEST_F(CorpusTest, BadPathsNameThemselves) {
  EXPECT_THAT(ErrorOf([&] { ReadTexts({Path("none")}); }),
              AllOf(HasSubstr(Path("none")), HasSubstr("No such file")));
  EXPECT_EQ(ErrorOf([&] { ReadTexts({Put("e", "")}); }), Path("e") + ": expected text, got no bytes");
  fs::create_directory(Path("folder"));
  EXPECT_THAT(ErrorOf([&] { ReadTexts({Path("folder")}); }),
              AllOf(HasSubstr(Path("folder")), HasSubstr("expected a folder with files")));
  Put("folder/.hidden", "x");
  EXPECT_THAT(ErrorOf([&] { ReadTexts({Path("folder")}); }), HasSubstr("expected a folder with files"));
  EXPECT_THAT(ErrorOf([&] { ReadTexts({}); }), HasSubstr("at least one file"));
  if (geteuid() == 0) return;  // root reads everything
  fs::permissions(Put("locked/a", "x"), fs::perms::none);
  EXPECT_THAT(ErrorOf([&] { ReadTexts({Path("locked")}); }), HasSubstr("Permission denied"));
  fs::permissions(Path("locked"), fs::perms::none);
  EXPECT_THAT(ErrorOf([&] { ReadTexts({Path("locked")}); }), HasSubstr("Permission denied"));
  fs::permissions(Path("locked"), fs::perms::owner_all);
}

TEST_F(CorpusTest, BinaryTextIsForBytesAlone) {
  std::string binary = Sentences(2000);
  binary[777] = '\xFF';
  const std::string path = Put("data", binary);
  EXPECT_EQ(Decoded(*MakeByteTokenizer(), LoadCorpus({path}, *MakeByteTokenizer(), 32)), binary);
  const auto bpe = TrainBpe(Sentences(2000), 300);
  EXPECT_THAT(ErrorOf([&] { LoadCorpus({path}, *bpe, 32); }),
              HasSubstr(path + ": expected valid UTF-8, got the byte 0xff at offset 777"));
}

// Little-endian words.
template <class T>
std::string Packed(const std::vector<T>& values) {
  std::string bytes;
  for (const T value : values) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> (8 * i));
  }
  return bytes;
}

std::vector<uint16_t> Ids(uint16_t count, uint16_t first) {
  std::vector<uint16_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

std::string Header(uint32_t magic, uint32_t version, uint32_t count) {
  std::vector<uint32_t> header(256);
  header[0] = magic, header[1] = version, header[2] = count;
  return Packed(header);
}

TEST_F(ShardTest, ReadsBothLayouts) {
  const std::string bare = Put("a.bin", Packed(Ids(100, 1000)));
  const std::string headed = Put("b.bin", Header(20240520, 1, 60) + Packed(Ids(60, 65000)));
  const auto open = MakeIdTokenizer(0);
  const Corpus corpus = LoadCorpus({bare, headed}, *open, 10);
  ASSERT_EQ(corpus.train.size(), 144u);
  ASSERT_EQ(corpus.validation.size(), 16u);
  EXPECT_EQ(corpus.train[0], 1000);
  EXPECT_EQ(corpus.train[99], 1099);
  EXPECT_EQ(corpus.train[100], 65000);
  EXPECT_EQ(corpus.validation[15], 65059);
  EXPECT_EQ(corpus.validation_bytes, std::vector<int32_t>(16, 0));
  EXPECT_EQ(corpus.vocab, 65088);  // 65059 + 1, rounded up to a multiple of 64
  EXPECT_EQ(corpus.tokenizer_name, "ids");
  EXPECT_EQ(LoadCorpus({bare}, *open, 10).vocab, 1152);
  EXPECT_EQ(LoadCorpus({bare}, *MakeIdTokenizer(1100), 10).vocab, 1100);
  EXPECT_EQ(LoadCorpus({folder_}, *open, 10).train, corpus.train);
}

TEST_F(ShardTest, RefusesWhatItCannotRead) {
  const auto open = MakeIdTokenizer(0);
  const auto refusal = [&](const std::string& contents) {
    const std::string path = Put("s.bin", contents);
    const std::string message = ErrorOf([&] { LoadCorpus({path}, *open, 4); });
    EXPECT_TRUE(message.starts_with(path + ": ")) << message;
    return message;
  };
  const std::string tokens = Packed(Ids(50, 7));
  EXPECT_THAT(refusal(Header(20240520, 2, 50) + tokens),
              HasSubstr("expected magic 20240520 version 1, got magic 20240520 version 2"));
  EXPECT_THAT(refusal(Header(20240801, 7, 50) + tokens),
              HasSubstr("expected magic 20240520 version 1, got magic 20240801 version 7"));
  EXPECT_THAT(refusal(Header(20240326, 3, 50) + tokens), HasSubstr("got magic 20240326"));
  EXPECT_THAT(refusal(Header(__builtin_bswap32(20240520), 1, 50) + tokens), HasSubstr("expected magic"));
  EXPECT_THAT(refusal(Header(20240520, 1, 51) + tokens),
              HasSubstr("expected 1126 bytes for the 51 tokens of its header, got 1124"));
  EXPECT_THAT(refusal(Header(20240520, 1, 0xFFFFFFFF) + tokens), HasSubstr("expected 8589935614 bytes"));
  EXPECT_THAT(refusal(Header(20240520, 1, 50).substr(0, 500)),
              HasSubstr("header of 1024 bytes, got only 500"));
  EXPECT_THAT(refusal(tokens + "x"), HasSubstr("an even number of bytes, got 101"));
  EXPECT_THAT(refusal(""), HasSubstr("empty file"));
}

TEST_F(ShardTest, RefusesTheWrongTokenizerAndMixtures) {
  const std::string shard = Put("a.bin", Packed(Ids(50, 240))), text = Put("a.txt", Sentences(500));
  EXPECT_EQ(ErrorOf([&] { LoadCorpus({shard}, *MakeIdTokenizer(270), 4); }),
            shard + ": expected token ids below 270, got 270 at token 30");
  EXPECT_THAT(ErrorOf([&] { LoadCorpus({shard}, *MakeByteTokenizer(), 4); }),
              HasSubstr("below 256, got 256"));
  EXPECT_THAT(ErrorOf([&] { LoadCorpus({shard, text}, *MakeByteTokenizer(), 4); }), HasSubstr("got both"));
  EXPECT_THAT(ErrorOf([&] { LoadCorpus({folder_}, *MakeIdTokenizer(0), 4); }), HasSubstr("got both"));
  EXPECT_THAT(ErrorOf([&] { LoadCorpus({text}, *MakeIdTokenizer(0), 4); }),
              HasSubstr(text + ": expected a .bin"));
  EXPECT_THAT(ErrorOf([&] { ReadTexts({shard}); }), HasSubstr(shard + ": expected text"));
  EXPECT_EQ(ErrorOf([&] { LoadCorpus({shard}, *MakeIdTokenizer(0), 25); }),
            "text: expected at least 52 tokens (for context 25), got 50");
}

}  // namespace
}  // namespace strata
