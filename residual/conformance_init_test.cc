// Names, shapes, initial values and decay of every parameter; options and their errors; what the initial
// values lead to in training.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "residual/testing.h"

namespace strata {
namespace {

using Strings = std::vector<std::string>;

// "name [shape] initial values decay" of each parameter.
Strings Describe(const std::string& spec, int sites, int64_t dim) {
  Strings lines;
  const auto mechanism = MakeMechanism<float>(ParseResidual(spec), sites, dim);
  for (const Parameter& p : mechanism->Parameters()) {
    std::string init = fmt::format("{}", p.init.value);
    if (p.init.kind == Init::Kind::kNormal) init = "normal " + init;
    if (p.init.kind == Init::Kind::kValues) {
      EXPECT_EQ(static_cast<int64_t>(p.init.values.size()), p.size());
      init.clear();
      for (const double v : p.init.values) init += fmt::format("{:.3g} ", v);
      init.pop_back();
    }
    std::string shape;
    for (const int64_t extent : p.shape) shape += fmt::format("{}{}", shape.empty() ? "" : ",", extent);
    lines.push_back(fmt::format("{} [{}] {}{}", p.name, shape, init, p.decays ? " decays" : ""));
  }
  return lines;
}

TEST(Parameters, AreNamedShapedInitialisedAndDecayedAsSpecified) {
  EXPECT_EQ(Describe("standard", 2, 3), Strings{});
  for (const std::string name : {"highway", "state-gate"}) {
    EXPECT_EQ(Describe(name, 1, 3),
              (Strings{"sites.0.gate.weight [3,3] normal 0.02 decays",
                       name == "highway" ? "sites.0.gate.bias [3] -2" : "sites.0.gate.bias [3] 0"}));
  }
  EXPECT_EQ(Describe("review:gate-bias=40", 1, 3),
            (Strings{"sites.0.gate.state [3,3] 0 decays", "sites.0.gate.update [3,3] 0 decays",
                     "sites.0.gate.bias [3] 40"}));
  EXPECT_EQ(Describe("dense", 5, 3),
            (Strings{"sites.2.weights [2] 0 1", "sites.4.weights [3] 0 0 1", "head.weights [4] 0 0 0 1"}));
  EXPECT_EQ(Describe("rezero", 2, 3), (Strings{"sites.0.gain [1] 0", "sites.1.gain [1] 0"}));
  EXPECT_EQ(Describe("layerscale", 1, 3), Strings{"sites.0.gain [3] 0.1"});
  EXPECT_EQ(Describe("x0", 3, 3), (Strings{"sites.0.weights [2] 1.15 0.2", "sites.2.weights [2] 1.05 0.05"}));
  EXPECT_EQ(Describe("attnres:block=1", 1, 3), (Strings{"sites.0.query [3] 0", "sites.0.norm.weight [3] 1",
                                                        "head.query [3] 0", "head.norm.weight [3] 1"}));
  EXPECT_EQ(Describe("attnres:block=1,weights=static", 1, 3),
            (Strings{"sites.0.logits [1] 0", "head.logits [2] 0"}));
  EXPECT_EQ(Describe("attnres:block=1,query=input,key-norm=false", 1, 3),
            (Strings{"sites.0.query.weight [3,3] 0", "head.query.weight [3,3] 0"}));
  EXPECT_EQ(
      Describe("gated:slots=2", 1, 5),
      (Strings{"sites.0.norm.weight [2,5] 0", "sites.0.down.weight [16,10] normal 0.02 decays",
               "sites.0.up.weight [10,16] normal 0.02 decays", "sites.0.write.weight [2,10] normal 0.02",
               "head.norm.weight [2,5] 0", "head.down.weight [16,10] normal 0.02 decays",
               "head.up.weight [10,16] normal 0.02 decays"}));
  EXPECT_EQ(Describe("gated:head=mean", 1, 5).size(), 4u);
  EXPECT_EQ(Describe("gated", 1, 320)[1], "sites.0.down.weight [40,1280] normal 0.02 decays");
  EXPECT_EQ(Describe("mhc:slots=2", 3, 5),
            (Strings{"sites.0.projection.weight [8,10] 0 decays", "sites.0.scale [3] 0.01",
                     "sites.0.bias [8] 3 -3 0 0 3 -3 -3 3", "sites.1.projection.weight [8,10] 0 decays",
                     "sites.1.scale [3] 0.01", "sites.1.bias [8] -3 3 0 0 3 -3 -3 3",
                     "sites.2.projection.weight [8,10] 0 decays", "sites.2.scale [3] 0.01",
                     "sites.2.bias [8] 3 -3 0 0 3 -3 -3 3"}));
  EXPECT_EQ(
      Describe("mhc:slots=1,collapse=head", 1, 5),
      (Strings{"sites.0.projection.weight [3,5] 0 decays", "sites.0.scale [3] 0.01", "sites.0.bias [3] 3 0 3",
               "head.projection.weight [1,5] 0 decays", "head.scale [1] 0.01", "head.bias [1] 3"}));
  EXPECT_EQ(Describe("mhc:collapse=head", 1, 5).back(), "head.bias [4] -1.1 -1.1 -1.1 -1.1");
  EXPECT_EQ(
      Describe("hc:slots=2", 1, 5),
      (Strings{"sites.0.norm.weight [5] 1", "sites.0.norm.bias [5] 0", "sites.0.dynamic.read [5] 0 decays",
               "sites.0.dynamic.write [5] 0 decays", "sites.0.dynamic.keep [5,2] 0 decays",
               "sites.0.scale [2] 0.01", "sites.0.static.read [2] 1 0", "sites.0.static.write [2] 1",
               "sites.0.static.keep [2,2] 1 0 0 1"}));
  EXPECT_EQ(Describe("hc:slots=1,norm=rms", 1, 5),
            (Strings{"sites.0.norm.weight [5] 1", "sites.0.dynamic.read [5] 0 decays",
                     "sites.0.dynamic.write [5] 0 decays", "sites.0.dynamic.keep [5,1] 0 decays",
                     "sites.0.scale [2] 0.01", "sites.0.static.read [1] 1", "sites.0.static.write [1] 1",
                     "sites.0.static.keep [1,1] 1"}));
  EXPECT_EQ(
      Describe("hc:slots=2,dynamic=false,collapse=head", 2, 5),
      (Strings{"sites.0.static.read [2] 1 0", "sites.0.static.write [2] 1",
               "sites.0.static.keep [2,2] 1 0 0 1", "sites.1.static.read [2] 0 1",
               "sites.1.static.write [2] 1", "sites.1.static.keep [2,2] 1 0 0 1",
               "head.projection.weight [2,10] 0 decays", "head.scale [1] 0.01", "head.bias [2] -0 -0"}));
  EXPECT_EQ(Describe("mhc-lite:slots=2", 2, 5),
            (Strings{"sites.0.projection.weight [6,10] 0 decays", "sites.0.scale [3] 0.01",
                     "sites.0.bias [6] 1 -1 1 -1 0 -8", "sites.1.projection.weight [6,10] 0 decays",
                     "sites.1.scale [3] 0.01", "sites.1.bias [6] -1 1 -1 1 0 -8"}));
  EXPECT_EQ(
      Describe("mhc-lite:slots=1,collapse=head", 1, 5),
      (Strings{"sites.0.projection.weight [3,5] 0 decays", "sites.0.scale [3] 0.01", "sites.0.bias [3] 1 1 0",
               "head.projection.weight [1,5] 0 decays", "head.scale [1] 0.01", "head.bias [1] 3"}));
  EXPECT_EQ(Describe("mhc-lite", 1, 5).front(), "sites.0.projection.weight [32,20] 0 decays");
  EXPECT_EQ(
      Describe("krom:collapse=head", 1, 5),
      (Strings{"sites.0.projection.weight [12,20] 0 decays", "sites.0.scale [3] 0.01",
               "sites.0.bias [12] 1 -1 -1 -1 1 -1 -1 -1 0 -8 0 -8", "head.projection.weight [4,20] 0 decays",
               "head.scale [1] 0.01", "head.bias [4] -1.1 -1.1 -1.1 -1.1"}));
  EXPECT_EQ(Describe("krom:slots=1", 1, 5), (Strings{"sites.0.projection.weight [2,5] 0 decays",
                                                     "sites.0.scale [3] 0.01", "sites.0.bias [2] 1 1"}));
}

TEST(Parameters, InitialReadsAreTheMeanAndTheHomeSlot) {
  Toy<double> attention("attnres:block=2", 4, 3), mhc("mhc:collapse=head", 6, 3);
  attention.SetInitial();
  mhc.SetInitial();
  const auto e = RandomNumbers(3, 1, 1);
  Walker<double> a(*attention.mechanism, Walker<double>::Mode::kTrain),
      m(*mhc.mechanism, Walker<double>::Mode::kTrain);
  Forward(attention, &a, e);
  Forward(mhc, &m, e);
  for (int s = 0; s <= 4; ++s) {
    const Slice<double>& read = a.coefs(s).read;
    for (int64_t k = 0; k < read.size(); ++k)
      EXPECT_DOUBLE_EQ(read[k], 1.0 / static_cast<double>(read.size()));
  }
  for (int s = 0; s < 6; ++s) {
    for (int k = 0; k < 4; ++k) {
      EXPECT_NEAR(m.coefs(s).read[k], k == s % 4 ? .95257 : .04743, 1e-5);
      EXPECT_EQ(m.coefs(s).write[k], 1);
      for (int j = 0; j < 4; ++j) EXPECT_NEAR(m.coefs(s).keep[j * 4 + k], j == k ? .99261 : .002460, 1e-5);
    }
  }
  for (int k = 0; k < 4; ++k) EXPECT_NEAR(m.coefs(6).read[k], .25, 2e-6);
}

TEST(Parameters, HyperConnectionsStartAsThePlainResidualInEverySlot) {
  for (const std::string spec : {"hc", "hc:norm=rms,slots=3", "hc:dynamic=false,slots=8"}) {
    Toy<double> hc(spec, 6, 3), plain("standard", 6, 3);
    hc.Randomise(61);
    hc.SetInitial();
    plain.Randomise(61);
    plain.weights = hc.weights;
    const auto e = RandomNumbers(4 * 3, 1, 62);
    Walker<double> a(*hc.mechanism, Walker<double>::Mode::kTrain),
        b(*plain.mechanism, Walker<double>::Mode::kTrain);
    const auto of_hc = Forward(hc, &a, e), of_plain = Forward(plain, &b, e);
    for (size_t s = 0; s < 6; ++s) EXPECT_EQ(of_hc[s], of_plain[s]) << spec << " site " << s;
    const double n = hc.mechanism->open_slots();
    for (size_t i = 0; i < e.size(); ++i) EXPECT_NEAR(of_hc[6][i], n * of_plain[6][i], 1e-13) << spec;
  }
}

// Largest distance between two slots at the head after some steps of gradient descent on |output - target|^2
// / 2.
double SpreadAfterTraining(const std::string& spec, bool home_slots, int steps) {
  constexpr int64_t kDim = 4, kTokens = 8;
  Toy<double> toy(spec, 6, kDim);
  const int slots = toy.mechanism->open_slots();
  toy.Randomise(41);
  toy.SetInitial();
  size_t at = 0;
  for (const Parameter& p : toy.mechanism->Parameters()) {
    for (int64_t i = 0; i < p.size(); ++i, ++at) {
      const bool of_read_or_write = p.name.find("bias") != std::string::npos && i < 2 * slots;
      if (!home_slots && of_read_or_write) toy.parameters[at] = 0;
      if (!home_slots && p.name.find("static.read") != std::string::npos) toy.parameters[at] = 1.0 / slots;
    }
  }
  const auto e = RandomNumbers(kTokens * kDim, 1, 42), target = RandomNumbers(kTokens * kDim, 2, 43);
  Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kTrain);
  const double rate = spec.rfind("hc", 0) == 0 ? 5e-4 : 0.05;  // nothing bounds hc's tables
  for (int step = 0;; ++step) {
    const auto x = Forward(toy, &walker, e);
    if (step == steps) break;
    Numbers<double> dx = x.back();
    for (size_t i = 0; i < dx.size(); ++i) dx[i] -= target[i];
    const auto g = Backward(toy, &walker, x, dx);
    for (size_t i = 0; i < g.parameters.size(); ++i) toy.parameters[i] -= rate * g.parameters[i];
    for (size_t i = 0; i < g.weights.size(); ++i) toy.weights[i] -= rate * g.weights[i];
  }
  double spread = 0;
  for (const double* slot : walker.state(6).slots) {
    for (int64_t i = 0; i < kTokens * kDim; ++i) {
      spread = std::max(spread, std::abs(slot[i] - walker.state(6).slots[0][i]));
      EXPECT_TRUE(std::isfinite(slot[i])) << spec;
    }
  }
  return spread;
}

TEST(Training, SlotsGrowApartFromTheirInitialValuesButNotFromEqualOnes) {
  for (const char* spec : {"mhc:slots=3", "hc:slots=3,collapse=mean", "hc:dynamic=false,collapse=mean"}) {
    EXPECT_LT(SpreadAfterTraining(spec, true, 0), 1e-9) << spec;
    EXPECT_GT(SpreadAfterTraining(spec, true, 20), 1e-2) << spec;
  }
  for (const char* spec : {"mhc-lite:slots=3", "krom"}) {  // their writes differ from the start
    const double before = SpreadAfterTraining(spec, true, 0);
    EXPECT_GT(before, 0.1) << spec;
    EXPECT_GT(SpreadAfterTraining(spec, true, 20), before) << spec;
  }
  for (const char* spec : {"mhc:slots=3", "hc:slots=3,collapse=mean", "hc:dynamic=false,collapse=mean",
                           "mhc-lite:slots=3", "krom"}) {
    EXPECT_LT(SpreadAfterTraining(spec, false, 20), 1e-9) << spec;  // the symmetry trap that home slots avoid
  }
}

void ExpectUsageError(const std::string& spec, const std::string& message) {
  try {
    MakeMechanism<float>(ParseResidual(spec), 4, 8);
    ADD_FAILURE() << spec << " is accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage) << spec;
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << spec << ": " << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

TEST(Options, WrongOnesAreUsageErrorsThatNameWhatWouldBeRight) {
  ExpectUsageError("atnres", "did you mean \"attnres\"? Known: standard, ");
  ExpectUsageError("", "did you mean");
  ExpectUsageError("standard:block=2", "standard: expected no options, got \"block\"");
  ExpectUsageError("attnres:blocks=2", "did you mean \"block\"? Options: block, weights, ");
  ExpectUsageError("attnres:block=0", "attnres: block: expected an integer from 1 to");
  ExpectUsageError("attnres:block=-3", "got \"-3\"");
  ExpectUsageError("attnres:block=2x", "got \"2x\"");
  ExpectUsageError("attnres:block=99999999999999999999", "attnres: block: expected an integer");
  ExpectUsageError("attnres:block=2,block=2", "got \"block\" twice");
  ExpectUsageError("attnres:block", "expected NAME[:option=value,...]");
  ExpectUsageError("attnres:block=", "expected NAME[:option=value,...]");
  ExpectUsageError("attnres:", "expected NAME[:option=value,...]");
  ExpectUsageError("attnres:block=2,", "expected NAME[:option=value,...]");
  ExpectUsageError("attnres:eps=-1", "eps: expected a number of at least 0");
  ExpectUsageError("attnres:eps=nan", "got \"nan\"");
  ExpectUsageError("attnres:eps=inf", "got \"inf\"");
  ExpectUsageError("attnres:heads=3", "attnres: heads: expected a divisor of dim 8, got \"3\"");
  ExpectUsageError("attnres:weights=static,key-norm=false",
                   "key-norm: expected no key-norm with weights=static");
  ExpectUsageError("attnres:weights=max", "weights: expected softmax or sigmoid or static");
  ExpectUsageError("attnres:key-norm=1", "key-norm: expected true or false, got \"1\"");
  ExpectUsageError("gated:rank=0", "gated: rank: expected an integer from 1");
  ExpectUsageError("gated:head=sum", "head: expected gated or mean");
  ExpectUsageError("mhc:slot=2", "did you mean \"slots\"?");
  ExpectUsageError("mhc:slots=0", "mhc: slots: expected an integer from 1 to 32, got \"0\"");
  ExpectUsageError("mhc:iterations=0", "iterations: expected an integer from 1");
  ExpectUsageError("mhc:form=v5", "mhc: form: expected v4 or paper, got \"v5\"");
  ExpectUsageError("mhc:collapse=max", "collapse: expected mean or sum or head");
  ExpectUsageError("mhc:form=paper,eps=1e-6", "mhc: eps: expected no eps with form=paper");
  ExpectUsageError("hc:dynamic=no", "hc: dynamic: expected true or false, got \"no\"");
  ExpectUsageError("hc:norm=batch", "hc: norm: expected layer or rms");
  ExpectUsageError("hc:slots=33", "hc: slots: expected an integer from 1 to 32");
  ExpectUsageError("hc:dynamic=false,tanh=true", "hc: tanh: expected no tanh with dynamic=false");
  ExpectUsageError("hc:dynamic=false,norm=layer", "hc: norm: expected no norm with dynamic=false");
  ExpectUsageError("hc:dynamic=false,eps=1e-6", "hc: eps: expected no eps with dynamic=false");
  MakeMechanism<float>(ParseResidual("hc:dynamic=false,collapse=head,eps=1e-6"), 4, 8);
  ExpectUsageError("mhc-lite:slots=6",
                   "mhc-lite: slots: expected an integer from 1 to 5 (every site weighs all "
                   "n! permutations");
  ExpectUsageError("mhc-lite:eps=1e-6", "unknown option \"eps\"");
  ExpectUsageError("krom:slots=6", "krom: slots: expected a power of two from 1 to 32");
  ExpectUsageError("krom:slots=64", "krom: slots: expected an integer from 1 to 32");
  ExpectUsageError("krom:iterations=3", "krom: unknown option \"iterations\"");
}

TEST(Options, ReadBackAsTheyWereGivenInOneOrder) {
  EXPECT_EQ(ToString(ParseResidual("mhc:slots=2,form=paper")), "mhc:form=paper,slots=2");
  EXPECT_EQ(ToString(ParseResidual("standard")), "standard");
  EXPECT_EQ(MechanismNames(), (Strings{"standard", "highway", "state-gate", "review", "hc", "mhc", "mhc-lite",
                                       "krom", "gated", "attnres", "dense", "rezero", "layerscale", "x0"}));
}

TEST(Options, EachHasAnEffectAndItsDefaultIsTheDocumentedValue) {
  const auto out = [](const std::string& spec) {
    Toy<double> toy(spec, 9, 3);
    toy.Randomise(51);
    Walker<double> walker(*toy.mechanism, Walker<double>::Mode::kInfer);
    return Forward(toy, &walker, RandomNumbers(3, 1, 52)).back();
  };
  EXPECT_EQ(out("attnres"), out("attnres:block=2,eps=1e-6"));
  EXPECT_EQ(out("attnres"), out("attnres:weights=softmax,query=learned,heads=1,window=0,key-norm=true"));
  for (const char* spec :
       {"attnres:weights=sigmoid", "attnres:window=2", "attnres:heads=3", "attnres:key-norm=false"}) {
    EXPECT_NE(out("attnres"), out(spec)) << spec;
  }
  EXPECT_EQ(out("gated"), out("gated:slots=4,rank=16,eps=1e-6,head=gated,init=0.02"));
  for (const char* spec : {"gated:slots=3", "gated:rank=3", "gated:eps=0.1", "gated:head=mean"}) {
    EXPECT_NE(out("gated"), out(spec)) << spec;
  }
  EXPECT_EQ(out("mhc"), out("mhc:slots=4,iterations=20,form=v4,eps=1e-6,norm-eps=1e-6,collapse=mean"));
  for (const char* spec : {"attnres:block=3", "attnres:eps=1e-2"})
    EXPECT_NE(out("attnres"), out(spec)) << spec;
  for (const char* spec : {"mhc:slots=3", "mhc:iterations=3", "mhc:form=paper", "mhc:eps=1e-3",
                           "mhc:norm-eps=0.1", "mhc:collapse=sum", "mhc:collapse=head"}) {
    EXPECT_NE(out("mhc"), out(spec)) << spec;
  }
  EXPECT_EQ(out("hc"), out("hc:slots=4,dynamic=true,tanh=true,norm=layer,collapse=sum,eps=1e-5"));
  for (const char* spec : {"hc:slots=3", "hc:dynamic=false", "hc:tanh=false", "hc:norm=rms",
                           "hc:collapse=mean", "hc:collapse=head", "hc:eps=1e-2"}) {
    EXPECT_NE(out("hc"), out(spec)) << spec;
  }
  EXPECT_NE(out("hc:dynamic=false,collapse=head"), out("hc:dynamic=false,collapse=head,eps=0.1"));
  for (const std::string name : {"mhc-lite", "krom"}) {
    EXPECT_EQ(out(name), out(name + ":slots=4,norm-eps=1e-6,collapse=mean"));
    for (const char* option : {":slots=2", ":norm-eps=0.1", ":collapse=sum", ":collapse=head"}) {
      EXPECT_NE(out(name), out(name + option)) << name << option;
    }
  }
}

}  // namespace
}  // namespace strata
