// strata trace as a program.
#include <nlohmann/json.hpp>

#include "tools/testing.h"

namespace strata {
namespace {

class TraceCommandTest : public ToolsTest {
 protected:
  static std::string Example(const std::string& name) {
    return fmt::format("'{}/docs/examples/{}.json'", STRATA_SOURCE_DIR, name);
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
    return name;
  }
};

TEST_F(TraceCommandTest, PrintsATableOrOneObjectAFile) {
  const Result table = Run("trace " + Example("hc-two-streams"));
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("input x, token 0                             1.5           0.5"));
  EXPECT_THAT(table.out, HasSubstr("state, token 0, slot 1                       0.6           1.5"));
  const Result json = Run("trace --json " + Example("hc-two-streams") + " " + Example("review-vector"));
  EXPECT_EQ(json.code, 0) << json.err;
  ASSERT_EQ(std::count(json.out.begin(), json.out.end(), '\n'), 2);
  const auto second = nlohmann::json::parse(json.out.substr(json.out.find('\n') + 1));
  EXPECT_NEAR(second["gradients"]["embedding"][0][0].get<double>(), 0.109865994, 6e-10);
}

TEST_F(TraceCommandTest, BadCasesAreOneLine) {
  ExpectError(Run("trace"), 2, "expected CASE.json");
  ExpectError(Run("trace none.json"), 1, "none.json");
  ExpectError(Run("trace ."), 1, ".");
  ExpectError(Run("trace " + Write("a.json", "{\"mechanism\": \"mhc\"")), 2,
              "a.json: case: expected a JSON object");
  ExpectError(Run("trace " + Write("a.json", "{\"mechanism\": \"mhc\", \"mechanism\": \"mhc\"}")), 2,
              "twice");
  ExpectError(Run("trace " + Write("a.json", "{\"mechanism\": \"mhc\", \"dmi\": 2}")), 2,
              "did you mean \"dim\"");
  ExpectError(Run("trace " + Write("a.json", std::string(200, '\xff'))), 2, "a.json");
  const std::string head =
      "{\"mechanism\": \"standard\", \"dim\": 1, \"sites\": [{\"sublayer\": {\"zero\": true}}], ";
  ExpectError(Run("trace " + Write("a.json", head + "\"embedding\": [[NaN]]}")), 2, "at byte");
  ExpectError(Run("trace " + Write("a.json", head + "\"embedding\": [[1], [2, 3]]}")), 2, "embedding[1]");
  EXPECT_EQ(Run("trace " + Write("a.json", head + "\"embedding\": []}")).code, 0);
  EXPECT_EQ(Run("trace " + Write("a.json", head + "\"embedding\": [[1e308]]}")).code, 0);
  std::string large = head + "\"embedding\": [[1]]}";
  large.append(size_t{100} << 20, ' ');
  ExpectError(Run("trace " + Write("large.json", large)), 1, "large.json: expected at most 67108864 bytes");
  for (const char* much : {R"({"mechanism": "mhc", "options": {"slots": 32}, "dim": 65536, "embedding": [],
                              "sites": [{"sublayer": {"zero": true}}]})"}) {
    ExpectError(Run("trace " + Write("a.json", much)), 2, "expected at most 134217728");
  }
}

TEST_F(TraceCommandTest, EndlessInputAndOutputAreRefused) {
  ExpectError(Run("trace /dev/zero"), 1, "/dev/zero: expected at most 67108864 bytes, got more");
  ExpectError(Run("trace /dev/stdin </dev/zero"), 1, "expected at most 67108864 bytes, got more");
  std::string sites = R"({"sublayer": {"zero": true}})";
  for (int i = 1; i < 10000; ++i) sites += R"(, {"sublayer": {"zero": true}})";
  const std::string deep =
      R"({"mechanism": "standard", "dim": 1, "embedding": [[1]], "sites": [)" + sites + "]}";
  ExpectError(Run("trace " + Write("deep.json", deep)), 2, "expected at most 16777216 numbers to print");
  ExpectError(Run("trace --json " + Example("hc-two-streams") + " >&-"), 1, "standard output");
  ExpectError(Run("mechanisms >&-"), 1, "standard output");
}

TEST_F(TraceCommandTest, MessagesAreFitForATerminal) {
  const std::string head = R"({"mechanism": "standard", "dim": 1, "embedding": [], "sites": [], )";
  const Result escape = Run("trace " + Write("a.json", head + R"("\u001b[2J\u0000": 1})"));
  ExpectError(escape, 2, "unknown key \"?[2J?\"");
  const Result name =
      Run("trace " + Write("a.json", R"({"mechanism": ")" + std::string(1 << 20, 'x') + "\"}"));
  ExpectError(name, 2, "unknown mechanism");
  EXPECT_LT(name.err.size(), 2100u);
}

}  // namespace
}  // namespace strata
