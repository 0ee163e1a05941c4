#include "study/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/files.h"

namespace strata {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using ::testing::HasSubstr;

ordered_json Traced(const json& c) { return Trace(ParseTraceCase(c.dump())); }

void ExpectNear(const json& expected, const json& actual, double tolerance, const std::string& where) {
  if (!expected.is_array()) {
    if (expected.is_null() || actual.is_null()) {
      EXPECT_EQ(expected, actual) << where;
      return;
    }
    EXPECT_NEAR(expected.get<double>(), actual.get<double>(), tolerance) << where;
    return;
  }
  ASSERT_TRUE(actual.is_array() && expected.size() == actual.size()) << where << ": " << actual.dump();
  for (size_t i = 0; i < expected.size(); ++i) {
    ExpectNear(expected[i], actual[i], tolerance, fmt::format("{}/{}", where, i));
  }
}

// A worked example: its file, a place in the result and what stands there.
struct Figure {
  const char *example, *place, *expected;
  double tolerance = 1e-15;
};

constexpr double kNineDigits = 6e-10;

const Figure kFigures[] = {
    {"hc-two-streams", "/sites/0/input", "[[1.5, 0.5]]"},
    {"hc-two-streams", "/sites/0/state", "[[[2, 0.2], [0.6, 1.5]]]"},
    {"hc-two-streams", "/gradients/state", "[[[1, 0], [1, 0]]]"},
    {"repeated-mixing-identity", "/sites/2/state", "[[[2], [0]]]"},
    {"repeated-mixing-doubled", "/sites/0/state", "[[[4], [0]]]"},
    {"repeated-mixing-doubled", "/sites/1/state", "[[[8], [0]]]"},
    {"repeated-mixing-doubled", "/sites/2/state", "[[[16], [0]]]"},
    {"repeated-mixing-averaged", "/sites/0/state", "[[[1.6], [0.4]]]"},
    {"repeated-mixing-averaged", "/sites/1/state", "[[[1.36], [0.64]]]"},
    {"repeated-mixing-averaged", "/sites/2/state", "[[[1.216], [0.784]]]"},
    {"gated-two-branches", "/sites/0/coefficients/normalised", "[[[1, 1], [1, -1]]]"},
    {"gated-two-branches", "/sites/0/coefficients/gate", "[[[0.8, 0.2], [0.4, 0.6]]]"},
    {"gated-two-branches", "/sites/0/coefficients/read", "[[[0.2, 0.05], [0.05, 0.075]]]"},
    {"gated-two-branches", "/sites/0/input", "[[0.6, -0.2]]"},
    {"gated-two-branches", "/sites/0/state", "[[[2.6, 1.7], [4.2, -4.1]]]"},
    {"attnres-fixed-weights", "/sites/2/input", "[[0.5, 2, 1.5]]"},
    {"attnres-other-weights", "/sites/2/input", "[[1, 1, 1.5]]"},
    {"attnres-equal-weights", "/sites/2/input", "[[0.666666666666667, 1.333333333333333, 2]]", 5e-15},
    {"standard-sum", "/sites/2/input", "[[2, 4, 6]]"},
    {"attnres-query", "/sites/2/coefficients/scores", "[[0, 0.693147180559945, 0]]", 5e-15},
    {"attnres-query", "/sites/2/coefficients/read", "[[0.25, 0.5, 0.25]]"},
    {"attnres-query", "/sites/2/input", "[[0.5, 2, 1.5]]"},
    {"attnres-block-sources", "/sites/2/state", "[[[5, 5, 5], [1, 2, 0], [0, 0, 3]]]"},
    {"attnres-block-sources", "/sites/3/state", "[[[5, 5, 5], [1, 2, 0], [4, 0, 3]]]"},
    {"attnres-block-sources", "/sites/2/coefficients/read", "[[0.5, 0.5]]"},
    {"attnres-full-sources", "/sites/2/state", "[[[5, 5, 5], [1, 0, 0], [0, 2, 0], [0, 0, 3]]]"},
    {"review-half", "/sites/0/coefficients/gate", "[[0.5, 0.5]]"},
    {"review-half", "/sites/0/state", "[[[1.25, -1.25]]]"},
    {"review-plain", "/sites/0/state", "[[[1.5, -0.5]]]"},
    {"mixing-standard", "/mixing", "[[[1,0,0,0],[1,1,0,0],[1,1,1,0],[1,1,1,1]]]"},
    {"mixing-highway", "/mixing",
     "[[[1,0,0,0],[0.75,0.25,0,0],[0.375,0.125,0.5,0],[0.09375,0.03125,0.125,0.75]]]"},
    {"mixing-hc", "/mixing", "[[[1,0,0,0],[1,0.75,0,0],[1,0.675,0.625,0],[2,1.5,1.5,1.5]]]"},
    {"mixing-attnres-full", "/mixing",
     "[[[1,0,0,0],[0.25,0.75,0,0],[0.25,0.5,0.25,0],[0.25,0.25,0.25,0.25]]]"},
    {"mixing-attnres-block", "/mixing",
     "[[[1,0,0,0],[0.25,0.75,0,0],[0.25,0.75,0.75,0],[0.333333333333333,0.333333333333333,0.333333333333333,"
     "0.333333333333333]]]"},
    {"gated-vector", "/sites/0/coefficients/low_rank", "[[-0.335477462, -0.556687706]]", kNineDigits},
    {"gated-vector", "/sites/0/coefficients/write", "[[0.913487740, 0.795359217]]", kNineDigits},
    {"gated-vector", "/sites/0/input", "[[0.277556439, 0.035904857, -0.156611228]]", kNineDigits},
    {"gated-vector", "/sites/0/update", "[[0.114140882, 0.128927236, -0.272571237]]", kNineDigits},
    {"gated-vector", "/sites/0/state",
     "[[[1.104266297, -1.882226551, 0.251009517], [0.340783003, 1.602543465, -1.216792046]]]", kNineDigits},
    {"review-vector", "/sites/0/update", "[[0.793723126, -0.453556072, -0.340167054]]", kNineDigits},
    {"review-vector", "/sites/0/coefficients/gate", "[[0.285792636, 0.536127275, 0.811520291]]", kNineDigits},
    {"review-vector", "/output", "[[1.226840225, -2.243163781, 0.223947534]]", kNineDigits},
    {"review-vector", "/gradients/embedding", "[[0.109865994, -0.228824911, 0.764967877]]", kNineDigits},
    {"review-vector", "/gradients/parameters/sites.0.gate.bias", "[0.048603288, 0.022559409, -0.026015144]",
     kNineDigits},
    {"review-convex-vector", "/output", "[[0.941047588, -1.170909231, -0.181812612]]", kNineDigits},
    {"review-convex-vector", "/gradients/embedding", "[[0.057661830, -0.107740413, 0.347576286]]",
     kNineDigits},
    {"review-convex-vector", "/gradients/parameters/sites.0.gate.bias",
     "[-0.012631274, -0.076918519, -0.064253921]", kNineDigits},
};

std::string Example(const std::string& name) {
  return ReadFile(std::string(STRATA_SOURCE_DIR "/docs/examples/") + name + ".json");
}

TEST(TraceExamples, ComeOutToTheirLastDigit) {
  for (const Figure& figure : kFigures) {
    const json out = Trace(ParseTraceCase(Example(figure.example)));
    const json::json_pointer place(figure.place);
    ASSERT_TRUE(out.contains(place)) << figure.example << figure.place;
    ExpectNear(json::parse(figure.expected), out[place], figure.tolerance,
               std::string(figure.example) + figure.place);
  }
}

TEST(TraceExamples, EachIsCheckedAndReadsAsATable) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(STRATA_SOURCE_DIR "/docs/examples")) {
    if (entry.path().extension() != ".json") continue;
    ++files;
    const std::string name = entry.path().stem();
    const bool checked =
        name == "review-state-gate" || std::any_of(std::begin(kFigures), std::end(kFigures),
                                                   [&](const Figure& f) { return name == f.example; });
    EXPECT_TRUE(checked) << name;
    const TraceCase c = ParseTraceCase(Example(name));
    EXPECT_THAT(TraceText(c, Trace(c)), HasSubstr("\nsite 0: ")) << name;
  }
  EXPECT_EQ(files, 23);
}

TEST(TraceExamples, ReviewThatDoesNotSeeTheUpdateGatesByTheNormalisedState) {
  const json out = Trace(ParseTraceCase(Example("review-state-gate")));
  const double rms = std::sqrt(2.5), u[] = {2.5, 0.5}, z[] = {(1 - 1) / rms, (-.5 - 4) / rms}, h[] = {1, -2};
  for (size_t d = 0; d < 2; ++d) {
    EXPECT_NEAR(out["output"][0][d].get<double>(), h[d] + u[d] / (1 + std::exp(-z[d])), 1e-15);
  }
}

// ---- gradients: differences of <cotangent, output>

double Loss(const json& c) {
  const json out = Traced(c);
  double sum = 0;
  for (size_t t = 0; t < out["output"].size(); ++t) {
    for (size_t d = 0; d < out["output"][t].size(); ++d) {
      sum += out["output"][t][d].get<double>() * c["cotangent"][t][d].get<double>();
    }
  }
  return sum;
}

// Every number under `place` of the case against the same number of `gradient`.
void CheckGradient(const json& c, const json::json_pointer& place, const json& gradient,
                   const std::string& name) {
  if (c[place].is_array()) {
    for (size_t i = 0; i < c[place].size(); ++i) CheckGradient(c, place / i, gradient[i], name);
    return;
  }
  constexpr double kStep = 1e-5;
  const auto at = [&](double steps) {
    json moved = c;
    moved[place] = c[place].get<double>() + steps * kStep;
    return Loss(moved);
  };
  const double expected = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * kStep);  // error of order kStep^4
  EXPECT_NEAR(gradient.get<double>(), expected, 1e-8 * (1 + std::abs(expected))) << name << place.to_string();
}

// All parameters written out, at numbers of their own.
json Filled(json c) {
  const TraceCase parsed = ParseTraceCase(c.dump());
  int next = 0;
  c["parameters"] = json::object();
  for (const Parameter& p : parsed.mechanism->Parameters()) {
    std::vector<double> values;
    for (int64_t i = 0; i < p.size(); ++i) values.push_back(0.6 * std::sin(1.3 * ++next));
    c["parameters"][p.name] = json(Nested(p.name, p.shape, values.data()));
  }
  return c;
}

void CheckGradients(const json& c, const std::string& name) {
  const json gradients = Traced(c)["gradients"];
  const char* start = c.contains("state") ? "state" : "embedding";
  CheckGradient(c, json::json_pointer(std::string("/") + start), gradients[start], name);
  for (const auto& item : c["parameters"].items()) {
    CheckGradient(c, json::json_pointer("/parameters") / item.key(), gradients["parameters"][item.key()],
                  name);
  }
  for (size_t s = 0; s < c["sites"].size(); ++s) {
    for (const char* kind : {"linear", "constant"}) {
      if (!c["sites"][s]["sublayer"].contains(kind)) continue;
      CheckGradient(c, json::json_pointer("/sites") / s / "sublayer" / kind, gradients["sublayers"][s][kind],
                    name);
    }
  }
}

json Case(const std::string& spec) {
  const ResidualSpec parsed = ParseResidual(spec);
  json c =
      json::parse(R"({"dim": 2, "embedding": [[0.5, -1.25], [2, 0.75]], "cotangent": [[1, -0.5], [0.25, 2]],
    "sites": [{"sublayer": {"linear": [[0.5, -0.3], [0.8, 0.1]], "norm": true}},
              {"sublayer": {"constant": [[0.2, -0.7], [1.1, 0.4]]}},
              {"sublayer": {"linear": [[-0.2, 0.9], [0.4, 0.6]]}}]})");
  c["mechanism"] = parsed.name;
  c["options"] = parsed.options;
  return c;
}

TEST(TraceGradients, AreTheDerivativesForEveryMechanism) {
  std::vector<std::string> specs = MechanismNames();
  for (const char* more :
       {"attnres:block=1,heads=2", "attnres:block=1,query=input", "attnres:block=1,weights=sigmoid",
        "attnres:weights=static", "mhc:collapse=head", "review:form=convex"}) {
    specs.emplace_back(more);
  }
  for (const std::string& spec : specs) {
    json c = Case(spec);
    if (spec == "gated") c["options"] = {{"slots", 2}, {"rank", 2}};
    if (spec == "mhc-lite") c["options"] = {{"slots", 2}};
    CheckGradients(Filled(c), spec);
  }
}

TEST(TraceGradients, AreTheDerivativesWithHeldCoefficientsAndFromGivenSlots) {
  struct Held {
    const char *spec, *fixed;
  };
  for (const Held& held :
       {Held{"highway", R"({"write": [0.3, 0.8]})"},
        Held{"highway", R"({"keep": [[0.3, 0.8], [1.5, -0.5]]})"},
        Held{"review:form=convex", R"({"write": [0.3, 0.8], "read": [0.5]})"},
        Held{"standard", R"({"read": [[2], [3]], "keep": [[0.5]], "write": [[2], [0.1]]})"},
        Held{"mhc:slots=2", R"({"keep": [0.5, 2]})"},
        Held{"mhc:slots=2", R"({"read": [0.5, 2], "write": [[1, 2], [3, 4]]})"},
        Held{"hc:slots=2", R"({"keep": [[[1, 2], [3, 4]], [[0, 1], [1, 0]]]})"},
        Held{"gated:slots=2,rank=2", R"({"read": [[0.8, 0.2], [0.4, 0.6]]})"},
        Held{"attnres:block=1", R"({"read": [0.5, 0.25]})"},
        Held{"layerscale", R"({"write": [0.5, 0.25]})"}}) {
    json c = Case(held.spec);
    c["sites"][1]["fixed"] = json::parse(held.fixed);
    CheckGradients(Filled(c), held.spec + std::string(held.fixed));
  }
  for (const char* spec :
       {"attnres:block=2", "attnres:block=1,window=1", "mhc:slots=3", "gated:slots=3,rank=2"}) {
    json c = Case(spec);
    c.erase("embedding");
    c["state"] = json::parse("[[[1, 2], [0.5, -1], [-2, 0.25]], [[0.1, 0.2], [3, -1], [1, 1]]]");
    const json filled = Filled(c);
    EXPECT_FALSE(Traced(filled).contains("mixing"));
    CheckGradients(filled, spec);
  }
}

// ---- the contract's shapes

TEST(TraceShapes, EveryCoefficientStartsWithATokenAxis) {
  const auto shape = [](const json& array) {
    std::vector<size_t> sizes;
    for (const json* at = &array; at->is_array() && !at->empty(); at = &at->front())
      sizes.push_back(at->size());
    return sizes;
  };
  using Sizes = std::vector<size_t>;
  const auto coefficients = [](const char* spec) {
    return json(Traced(Case(spec))["sites"][1]["coefficients"]);
  };
  EXPECT_EQ(coefficients("standard"), json::object());
  EXPECT_EQ(shape(coefficients("highway")["keep"]), (Sizes{2, 2}));
  EXPECT_EQ(shape(coefficients("review")["gate"]), (Sizes{2, 2}));
  EXPECT_FALSE(coefficients("state-gate").contains("keep"));
  EXPECT_EQ(shape(coefficients("hc")["dynamic"]["keep"]), (Sizes{2, 4, 4}));
  EXPECT_EQ(shape(coefficients("hc:dynamic=false")["read"]), (Sizes{2, 4}));
  EXPECT_EQ(shape(coefficients("mhc")["keep"]), (Sizes{2, 4, 4}));
  EXPECT_EQ(shape(coefficients("mhc")["logits"]), (Sizes{2, 24}));
  EXPECT_EQ(shape(coefficients("krom")["projection"]), (Sizes{2, 12}));
  EXPECT_EQ(shape(coefficients("gated")["low_rank"]), (Sizes{2, 16}));
  EXPECT_EQ(shape(coefficients("gated")["read"]), (Sizes{2, 4, 2}));
  EXPECT_EQ(shape(coefficients("attnres:heads=2")["scores"]), (Sizes{2, 2, 2}));
  EXPECT_EQ(shape(coefficients("attnres:heads=2")["read"]), (Sizes{2, 2, 2}));
  EXPECT_EQ(shape(coefficients("x0")["read"]), (Sizes{2, 2}));
  const json windowed = Traced(Case("attnres:block=1,window=1"))["sites"][2]["coefficients"];
  EXPECT_TRUE(windowed["scores"][0][1].is_null());
  EXPECT_EQ(windowed["read"][0][1], 0);
}

// Two tokens, two sources, two channels: the lists of a fixed read are tokens, never channels.
TEST(TraceShapes, AFixedReadOfSeveralHeadsIsPerToken) {
  const json out =
      Traced(json::parse(R"({"mechanism": "attnres", "options": {"heads": 2, "block": 2}, "dim": 2,
    "embedding": [[1, 2], [3, 4]], "sites": [{"sublayer": {"constant": [[10, 20], [30, 40]]}},
    {"sublayer": {"zero": true}, "fixed": {"read": [[1, 0], [0, 1]]}}]})"));
  EXPECT_EQ(out["sites"][1]["input"], json::parse("[[1, 2], [30, 40]]"));
  EXPECT_EQ(out["sites"][1]["coefficients"]["read"], json::parse("[[1, 0], [0, 1]]"));
}

TEST(TraceShapes, NoTokensAreFineAndEmpty) {
  for (const std::string& spec : MechanismNames()) {
    json c = json::parse(
        R"({"dim": 2, "embedding": [], "sites": [{"sublayer": {"constant": []}}], "cotangent": []})");
    c["mechanism"] = spec;
    const json out = Traced(c);
    EXPECT_EQ(out["output"], json::array()) << spec;
    EXPECT_EQ(out["gradients"]["embedding"], json::array()) << spec;
  }
}

// ---- what is wrong with a case

std::string Message(const std::string& text) {
  try {
    Trace(ParseTraceCase(text));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(TraceErrors, NameThePlace) {
  const std::string good =
      R"({"mechanism": "mhc", "dim": 2, "embedding": [[1, 2]], "sites": [{"sublayer": {"zero": true}}]})";
  EXPECT_EQ(Message(good), "no error");
  const auto with = [&](const char* pointer, const char* value) {
    json c = json::parse(good);
    c[json::json_pointer(pointer)] = json::parse(value);
    return Message(c.dump());
  };
  EXPECT_THAT(Message("{"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(Message(""), HasSubstr("an empty file"));
  EXPECT_THAT(Message("[1]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(Message("{\"dim\": NaN}"), HasSubstr("at byte"));
  EXPECT_THAT(Message("{\"dim\": Infinity}"), HasSubstr("at byte"));
  EXPECT_THAT(Message("{\"dim\": 1e999}"), HasSubstr("fit a double"));
  EXPECT_THAT(Message("{\"dim\": 2, \"dim\": 2}"), HasSubstr("\"dim\" twice"));
  EXPECT_THAT(Message("{\"dim\": " + std::string(100000, '[')), HasSubstr("nesting"));
  EXPECT_THAT(with("/dimm", "2"), HasSubstr("unknown key \"dimm\"; did you mean \"dim\""));
  EXPECT_THAT(with("/dim", "0"), HasSubstr("dim: expected 1 to"));
  EXPECT_THAT(with("/dim", "-3"), HasSubstr("dim: expected 1 to"));
  EXPECT_THAT(with("/dim", "1000000000000"), HasSubstr("dim: expected 1 to"));
  EXPECT_THAT(with("/dim", "2.5"), HasSubstr("\"dim\": expected an integer"));
  EXPECT_THAT(with("/dim", "3"), HasSubstr("embedding: expected shape [any, 3], got [1, 2]"));
  EXPECT_THAT(with("/seed", "-1"), HasSubstr("seed: expected at least 0"));
  EXPECT_THAT(with("/embedding", "[[1, 2], [3]]"), HasSubstr("embedding[1]: expected 2 entries"));
  EXPECT_THAT(with("/embedding", "[[1, \"2\"]]"), HasSubstr("embedding[0][1]: expected a number"));
  EXPECT_THAT(with("/embedding", "[[1, null]]"), HasSubstr("embedding[0][1]: expected a number"));
  EXPECT_THAT(with("/embedding", "7"), HasSubstr("embedding: expected a list"));
  EXPECT_THAT(with("/state", "[[[1, 2]]]"), HasSubstr("got both"));
  EXPECT_THAT(with("/sites", "[]"), HasSubstr("at least one site"));
  EXPECT_THAT(with("/sites/0/sublayer", "{}"), HasSubstr("sites[0].sublayer: expected one of"));
  EXPECT_THAT(with("/sites/0/sublayer", "{\"zero\": true, \"norm\": true}"), HasSubstr("\"norm\""));
  EXPECT_THAT(with("/sites/0/sublayer", "{\"linear\": [[1, 2]]}"), HasSubstr("expected shape [2, 2]"));
  EXPECT_THAT(with("/sites/0/fixed", "{\"read\": [1, 2]}"),
              HasSubstr("sites[0].fixed.read: expected shape [4]"));
  EXPECT_THAT(with("/sites/0/fixed", "{\"gate\": [1]}"), HasSubstr("unknown key \"gate\""));
  EXPECT_THAT(with("/options", "{\"slots\": 0}"), HasSubstr("slots: expected"));
  EXPECT_THAT(with("/options", "{\"slots\": [4]}"), HasSubstr("options.slots"));
  EXPECT_THAT(with("/options", "{\"slot\": 4}"), HasSubstr("did you mean \"slots\""));
  EXPECT_THAT(with("/mechanism", "\"mhk\""), HasSubstr("unknown mechanism"));
  EXPECT_THAT(with("/parameters", "{\"sites.0.bia\": [1]}"), HasSubstr("did you mean \"sites.0.bias\""));
  EXPECT_THAT(with("/parameters", "{\"sites.0.bias\": [1]}"), HasSubstr("expected shape [24]"));
  EXPECT_THAT(with("/cotangent", "[[1, 2, 3]]"), HasSubstr("cotangent: expected shape [1, 2]"));
  EXPECT_THAT(with("/dim", "60000"), HasSubstr("embedding: expected shape"));
  const auto of = [](const char* mechanism, const char* options) {
    return Message(fmt::format(R"({{"mechanism": "{}", "options": {}, "dim": 1, "embedding": [[1]],
                                  "sites": [{{"sublayer": {{"zero": true}}, "fixed": {{"keep": [1]}}}}]}})",
                               mechanism, options));
  };
  EXPECT_THAT(of("mhc-lite", "{\"slots\": 6}"), HasSubstr("slots: expected an integer from 1 to 5"));
  EXPECT_THAT(of("krom", "{\"slots\": 3}"), HasSubstr("power of two"));
  EXPECT_THAT(of("attnres", "{}"), HasSubstr("expected only \"read\""));
  EXPECT_THAT(of("standard", "{}"), HasSubstr("no error"));
}

TEST(TraceErrors, SayWhereANumberOverflows) {
  const char* const kHuge = R"({"mechanism": "standard", "dim": 1, "embedding": [[1e308]],
    "sites": [{"sublayer": {"constant": [[1e308]]}}]})";
  EXPECT_EQ(Message(kHuge), "sites[0].state: expected numbers that fit a double, got an overflow");
  for (const std::string& name : MechanismNames()) {
    json c = json::parse(kHuge);
    c["mechanism"] = name;
    c["sites"][0]["sublayer"] = {{"zero", true}};
    const std::string message = Message(c.dump());
    EXPECT_TRUE(message == "no error" || message.find("overflow") != std::string::npos) << name << message;
  }
}

}  // namespace
}  // namespace strata
