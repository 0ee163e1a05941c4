#include "study/trace_case.h"

#include <algorithm>

#include "base/error.h"
#include "base/options.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr int64_t kMostDim = 1 << 16;
constexpr int64_t kMostNumbers = int64_t{1} << 27;  // of parameters, or of the states of all sites
constexpr int64_t kMostShown = int64_t{1} << 24;    // of what the trace prints

void ExpectKeys(const std::string& where, const json& object, const std::vector<std::string>& known) {
  if (!object.is_object()) FailUsage("{}: expected an object, got {}", where, object.type_name());
  for (const auto& item : object.items()) {
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
      FailUsage("{}: unknown key \"{}\"; did you mean \"{}\"?", where, item.key(),
                Nearest(item.key(), known));
    }
  }
}

ResidualSpec ParseSpec(const json& root) {
  std::string name;
  if (!root.contains("mechanism")) FailUsage("mechanism: expected a name, got none");
  FromJson("case", "mechanism", root["mechanism"], &name);
  if (name.find(':') != std::string::npos) {
    FailUsage("mechanism: expected a name (options stand under \"options\"), got \"{}\"", name);
  }
  ResidualSpec spec = ParseResidual(name);
  if (!root.contains("options")) return spec;
  const json& options = root["options"];
  if (!options.is_object()) FailUsage("options: expected an object, got {}", options.type_name());
  for (const auto& item : options.items()) {
    const json& value = item.value();
    if (!value.is_string() && !value.is_number() && !value.is_boolean()) {
      FailUsage("options.{}: expected a text, a number, true or false, got {}", item.key(),
                value.type_name());
    }
    spec.options[item.key()] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return spec;
}

// Reads where the case starts and how many tokens and slots it has.
Array ParseStart(const json& root, TraceCase* c) {
  c->from_state = root.contains("state");
  if (c->from_state == root.contains("embedding")) {
    FailUsage("case: expected one of \"embedding\" and \"state\", got {}", c->from_state ? "both" : "none");
  }
  const char* key = c->from_state ? "state" : "embedding";
  Array array = ReadArray(key, root[key]);
  c->tokens = array.shape[0];
  if (c->tokens > 0) {
    ExpectShape(key, array,
                c->from_state ? std::vector<int64_t>{-1, -1, c->dim} : std::vector<int64_t>{-1, c->dim});
  } else {
    ExpectShape(key, array, {0});
  }
  return array;
}

// The eps of N in the sublayers: the mechanism's norm-eps, else its eps, else 1e-6.
double NormEps(const ResidualSpec& spec, const Size& size) {
  for (const char* name : {"norm-eps", "eps"}) {
    for (const OptionDoc& option : OptionsOf(spec.name, size)) {
      if (option.name != name) continue;
      const auto given = spec.options.find(name);
      double value = 0;
      ParseOption(name, given == spec.options.end() ? option.fallback : given->second, &value);
      return value;
    }
  }
  return 1e-6;
}

TraceSublayer ParseSublayer(const std::string& where, const json& object, int64_t tokens, int64_t dim) {
  ExpectKeys(where, object, {"linear", "norm", "constant", "zero"});
  if (object.contains("linear") + object.contains("constant") + object.contains("zero") != 1) {
    FailUsage("{}: expected one of \"linear\", \"constant\" and \"zero\", got {}", where, object.dump());
  }
  TraceSublayer sublayer;
  if (object.contains("norm")) FromJson(where, "norm", object["norm"], &sublayer.norm);
  if (object.contains("norm") && !object.contains("linear")) {
    FailUsage("{}: expected \"norm\" beside \"linear\" only", where);
  }
  if (object.contains("zero")) {
    bool zero = false;
    FromJson(where, "zero", object["zero"], &zero);
    if (!zero) FailUsage("{}.zero: expected true, got false", where);
    return sublayer;
  }
  const bool linear = object.contains("linear");
  const std::string key = where + (linear ? ".linear" : ".constant");
  Array array = ReadArray(key, object[linear ? "linear" : "constant"]);
  if (linear || tokens > 0) {
    ExpectShape(key, array, {linear ? dim : tokens, dim});
  } else {
    ExpectShape(key, array, {0});
  }
  sublayer.kind = linear ? TraceSublayer::Kind::kLinear : TraceSublayer::Kind::kConstant;
  sublayer.values = std::move(array.values);
  return sublayer;
}

// Shapes that a fixed coefficient may have, the first that fits taken.
struct Form {
  std::vector<int64_t> shape;
  Coef kind;
};

std::vector<double> ReadForms(const std::string& where, const json& value, const std::vector<Form>& forms,
                              Coef* kind) {
  Array array = ReadArray(where, value);
  std::string expected;
  for (const Form& form : forms) {
    const bool no_tokens = form.shape[0] == 0 && array.shape == std::vector<int64_t>{0};
    if (array.shape == form.shape || no_tokens) {
      *kind = form.kind;
      return std::move(array.values);
    }
    expected += (expected.empty() ? "" : " or ") + ShapeText(form.shape);
  }
  FailUsage("{}: expected shape {}, got {}", where, expected, ShapeText(array.shape));
}

class FixedReader {
 public:
  FixedReader(const TraceCase& c, Mechanism<double>* mechanism, int site)
      : mechanism_(mechanism), site_(site), tokens_(c.tokens), dim_(c.dim), rule_(mechanism->At(site)) {}

  HeldSite Read(const std::string& where, const json& object) {
    ExpectKeys(where, object, {"read", "keep", "write"});
    HeldSite held;
    if (object.contains("read")) ReadRead(where + ".read", object["read"], &held);
    for (const char* key : {"keep", "write"}) {
      if (object.contains(key) && (rule_.append || rule_.closed > 0)) {
        FailUsage("{}.{}: expected only \"read\" to be fixed where slots are appended or never rewritten",
                  where, key);
      }
    }
    if (object.contains("keep")) held.keep = ReadKeep(where + ".keep", object["keep"]);
    if (object.contains("write")) held.write = ReadWrite(where + ".write", object["write"]);
    return held;
  }

 private:
  void ReadRead(const std::string& where, const json& value, HeldSite* held) {
    const int64_t n = rule_.slots;
    Coef kind = Coef::kToken;
    if (rule_.normed) {  // the gate inside the read
      const auto gate = ReadForms(where, value, {{{n, dim_}, kind}, {{tokens_, n, dim_}, kind}}, &kind);
      if (!mechanism_->HoldGate(site_, gate)) FailUsage("{}: expected a read that can be fixed", where);
      return;
    }
    held->read = HeldCoef{};
    held->read->values = ReadForms(where, value, {{{n}, kind}, {{tokens_, n}, kind}}, &kind);
  }

  HeldCoef ReadKeep(const std::string& where, const json& value) {
    const int64_t n = rule_.slots;
    HeldCoef held;
    if (rule_.write == Coef::kChannel) {
      held.values =
          ReadForms(where, value, {{{dim_}, Coef::kChannel}, {{tokens_, dim_}, Coef::kChannel}}, &held.kind);
    } else {
      held.values = ReadForms(
          where, value, {{{n}, Coef::kToken}, {{n, n}, Coef::kMatrix}, {{tokens_, n, n}, Coef::kMatrix}},
          &held.kind);
    }
    return held;
  }

  HeldCoef ReadWrite(const std::string& where, const json& value) {
    const int64_t n = rule_.write == Coef::kChannel ? dim_ : rule_.slots;
    const Coef kind = rule_.write == Coef::kChannel ? Coef::kChannel : Coef::kToken;
    HeldCoef held;
    held.values = ReadForms(where, value, {{{n}, kind}, {{tokens_, n}, kind}}, &held.kind);
    return held;
  }

  Mechanism<double>* mechanism_;
  int site_;
  int64_t tokens_, dim_;
  Rule rule_;
};

// Numbers that the trace prints for every token: what each site did, and the mixing.
int64_t ShownPerToken(const TraceCase& c) {
  int64_t shown = (int64_t{c.sites()} + 1) * (int64_t{c.sites()} + 1);
  for (int site = 0; site <= c.sites(); ++site) {
    const Rule rule = c.mechanism->At(site);
    const int64_t n = rule.slots;
    shown += (n + 2) * c.dim + rule.saved + CoefSize(rule.read, n, c.dim) + CoefSize(rule.write, n, c.dim) +
             CoefSize(rule.keep == Coef::kToken ? Coef::kMatrix : rule.keep, n, c.dim);
  }
  return shown;
}

void CheckSizes(const TraceCase& c, int64_t parameters) {
  if (parameters > kMostNumbers) {
    FailUsage("case: expected at most {} parameters, got {}", kMostNumbers, parameters);
  }
  int64_t most = 1;
  for (int site = 0; site <= c.sites(); ++site) most = std::max<int64_t>(most, c.mechanism->At(site).slots);
  const int64_t rows = CheckedProduct(CheckedProduct(c.sites() + 1, most, "slots"), c.tokens, "rows");
  if (CheckedProduct(rows, std::max(c.dim, most), "numbers") > kMostNumbers) {
    FailUsage("case: expected at most {} numbers in the states of all sites, got {} sites of {} slots",
              kMostNumbers, c.sites(), most);
  }
  const int64_t shown = CheckedProduct(ShownPerToken(c), c.tokens, "numbers");
  if (shown > kMostShown) {
    FailUsage("case: expected at most {} numbers to print, got {} for {} sites and {} tokens", kMostShown,
              shown, c.sites(), c.tokens);
  }
}

void ParseParameters(const json& root, TraceCase* c) {
  const std::vector<Parameter>& declared = c->mechanism->Parameters();
  const uint64_t seed = [&] {
    int64_t value = 0;
    if (root.contains("seed")) FromJson("case", "seed", root["seed"], &value);
    if (value < 0) FailUsage("seed: expected at least 0, got {}", value);
    return static_cast<uint64_t>(value);
  }();
  int64_t total = 0;
  for (const Parameter& p : declared) total += p.size();
  CheckSizes(*c, total);
  c->parameters = InitialValues(declared, "residual.", seed);
  if (!root.contains("parameters")) return;
  std::vector<std::string> names;
  for (const Parameter& p : declared) names.push_back(p.name);
  if (names.empty() && root["parameters"].is_object() && !root["parameters"].empty()) {
    FailUsage("parameters: expected none for {}, got \"{}\"", ToString(c->spec),
              root["parameters"].begin().key());
  }
  ExpectKeys("parameters", root["parameters"], names);
  int64_t offset = 0;
  for (const Parameter& p : declared) {
    if (root["parameters"].contains(p.name)) {
      const std::string where = "parameters." + p.name;
      const Array array = ReadArray(where, root["parameters"][p.name]);
      ExpectShape(where, array, p.shape);
      std::copy(array.values.begin(), array.values.end(), c->parameters.begin() + offset);
    }
    offset += p.size();
  }
}

void ParseSites(const json& list, std::unique_ptr<Mechanism<double>> mechanism, TraceCase* c) {
  std::vector<HeldSite> held;
  for (size_t s = 0; s < list.size(); ++s) {
    const std::string where = fmt::format("sites[{}]", s);
    ExpectKeys(where, list[s], {"sublayer", "fixed"});
    if (!list[s].contains("sublayer")) FailUsage("{}: expected a \"sublayer\", got none", where);
    c->sublayers.push_back(ParseSublayer(where + ".sublayer", list[s]["sublayer"], c->tokens, c->dim));
    held.emplace_back();
    if (!list[s].contains("fixed")) continue;
    FixedReader reader(*c, mechanism.get(), static_cast<int>(s));
    held.back() = reader.Read(where + ".fixed", list[s]["fixed"]);
  }
  c->mechanism = MakeHeld(std::move(mechanism), std::move(held));
}

}  // namespace

TraceCase ParseTraceCase(const std::string& text) {
  const json root = ParseJsonObject("case", text);
  ExpectKeys(
      "case", root,
      {"mechanism", "options", "dim", "seed", "embedding", "state", "sites", "parameters", "cotangent"});
  TraceCase c;
  c.spec = ParseSpec(root);
  if (!root.contains("dim")) FailUsage("dim: expected a number of channels, got none");
  FromJson("case", "dim", root["dim"], &c.dim);
  if (c.dim < 1 || c.dim > kMostDim) FailUsage("dim: expected 1 to {}, got {}", kMostDim, c.dim);
  if (!root.contains("sites") || !root["sites"].is_array() || root["sites"].empty()) {
    FailUsage("sites: expected a list of at least one site");
  }
  Array start = ParseStart(root, &c);
  const json& sites = root["sites"];
  const int given = c.from_state && c.tokens > 0 ? static_cast<int>(start.shape[1]) : 0;
  const Size size{static_cast<int>(sites.size()), c.dim, given};
  auto mechanism = MakeMechanism<double>(c.spec, size);
  if (given > 0 && given != mechanism->open_slots()) {
    FailUsage("state: expected {} slots for {}, got {}", mechanism->open_slots(), ToString(c.spec), given);
  }
  c.norm_eps = NormEps(c.spec, size);
  c.start = std::move(start.values);
  ParseSites(sites, std::move(mechanism), &c);
  ParseParameters(root, &c);
  if (root.contains("cotangent")) {
    Array array = ReadArray("cotangent", root["cotangent"]);
    if (c.tokens > 0) {
      ExpectShape("cotangent", array, {c.tokens, c.dim});
    } else {
      ExpectShape("cotangent", array, {0});
    }
    c.cotangent = std::move(array.values);
  }
  return c;
}

}  // namespace strata
