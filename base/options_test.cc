#include "base/options.h"

#include <gtest/gtest.h>

#include "base/progress.h"

namespace strata {
namespace {

struct Small {
  int64_t width = 3;
  double rate = 0.5;
  std::string kind = "plain";
  std::vector<std::string> paths;

  template <class Self, class Visitor>
  static void Visit(Self& self, Visitor&& visit) {
    visit("width", self.width, "");
    visit("rate", self.rate, "");
    visit("kind", self.kind, "");
    visit("paths", self.paths, "");
  }
};

std::string Message(const std::string& text) {
  try {
    Small small;
    ReadOptions("f.json", ParseJsonObject("f.json", text), {}, {"extra"}, &small);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(Options, JsonKeepsEveryField) {
  Small before{7, 0.1, "other", {"a", "b"}}, after;
  nlohmann::json json;
  WriteOptions(before, &json);
  ReadOptions("f.json", nlohmann::json::parse(json.dump()), {}, {}, &after);
  EXPECT_EQ(after.width, 7);
  EXPECT_EQ(after.rate, 0.1);
  EXPECT_EQ(after.kind, "other");
  EXPECT_EQ(after.paths, (std::vector<std::string>{"a", "b"}));
}

TEST(Options, KeepsWhatTheCommandLineGave) {
  Small small;
  ReadOptions("f.json", {{"width", 9}, {"rate", 2}}, {"width"}, {}, &small);
  EXPECT_EQ(small.width, 3);
  EXPECT_EQ(small.rate, 2.0);
}

TEST(Options, NamesTheFault) {
  EXPECT_EQ(Message("{\"widht\": 3}"), "f.json: unknown option \"widht\"; did you mean \"width\"?");
  EXPECT_EQ(Message("{\"width\": 1.5}"), "f.json: \"width\": expected an integer, got 1.5");
  EXPECT_EQ(Message("{\"width\": 1e30}"), "f.json: \"width\": expected an integer, got 1e+30");
  EXPECT_EQ(Message("{\"width\": 18446744073709551615}"),
            "f.json: \"width\": expected an integer, got 18446744073709551615");
  EXPECT_EQ(Message("{\"rate\": \"x\"}"), "f.json: \"rate\": expected a number, got \"x\"");
  EXPECT_EQ(Message("{\"kind\": 3}"), "f.json: \"kind\": expected a text, got 3");
  EXPECT_EQ(Message("{\"paths\": [3]}"), "f.json: \"paths\": expected a list of texts, got [3]");
  EXPECT_EQ(Message("[]"), "f.json: expected a JSON object, got []");
  EXPECT_EQ(Message(""), "f.json: expected a JSON object, got an empty file at byte 1");
  EXPECT_EQ(Message(std::string("\x7f"
                                "ELF\0\1",
                                6)),
            "f.json: expected a JSON object, got something else at byte 1");
  EXPECT_EQ(Message("{\"extra\": 1}"), "no error");
}

TEST(Options, ParsesTextStrictly) {
  int64_t integer = 0;
  double number = 0;
  ParseOption("n", "-12", &integer);
  EXPECT_EQ(integer, -12);
  ParseOption("n", "1e-3", &number);
  EXPECT_EQ(number, 1e-3);
  for (const char* bad : {"", "1e30", "12x", "99999999999999999999", "0x10", " 1"}) {
    EXPECT_THROW(ParseOption("n", bad, &integer), Error) << bad;
  }
  for (const char* bad : {"", "nan", "inf", "1e999", "1,5"}) {
    EXPECT_THROW(ParseOption("n", bad, &number), Error) << bad;
  }
}

TEST(Progress, FormatsForPeople) {
  EXPECT_EQ(FormatDuration(75), "1:15");
  EXPECT_EQ(FormatDuration(3700), "1:01:40");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(3.0 * 1024 * 1024 * 1024), "3.0 GiB");
}

}  // namespace
}  // namespace strata
