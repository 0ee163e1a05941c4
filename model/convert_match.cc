#include "model/convert_match.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"

namespace strata {
namespace {

constexpr const char* kOurs = "residual.";
constexpr int64_t kHeadLayer = std::numeric_limits<int64_t>::max();  // the head comes last
constexpr size_t kMostNamed = 8;                                     // in one message

std::string Quoted(const std::string& prefix) { return prefix.empty() ? "\"\"" : prefix; }

std::optional<int64_t> MatchRule(const TensorRule& rule, std::string_view name) {
  for (const std::string& pattern : rule.theirs) {
    if (const auto layer = MatchName(pattern, name)) return layer;
  }
  return std::nullopt;
}

// What stands before the layout's names of sites: "model." for model.layers.0.hc_attn_fn.
std::set<std::string> PrefixesIn(const ConvertInput& input, const Layout& layout) {
  std::set<std::string> prefixes;
  for (const TensorView& tensor : input.tensors()) {
    const std::string_view name = tensor.name;
    for (size_t at = name.find("layers."); at != name.npos; at = name.find("layers.", at + 1)) {
      if (at > 0 && name[at - 1] != '.') continue;
      const auto matches = [&](const TensorRule& rule) {
        return rule.sublayer != kHead && MatchRule(rule, name.substr(at));
      };
      if (std::any_of(layout.rules.begin(), layout.rules.end(), matches))
        prefixes.emplace(name.substr(0, at));
    }
  }
  return prefixes;
}

// What else the input might be, for a message.
std::string Hint(const ConvertInput& input) {
  for (const Layout& layout : Layouts()) {
    if (!PrefixesIn(input, layout).empty()) return fmt::format(" (some look like --from {})", layout.name);
  }
  for (const TensorView& tensor : input.tensors()) {
    if (tensor.name.starts_with(kOurs)) return " (some have strata's own names: --to)";
  }
  return "";
}

std::string FindPrefix(const ConvertInput& input, const Layout& layout) {
  std::set<std::string> found = PrefixesIn(input, layout), known;
  for (const std::string& prefix : layout.prefixes) {
    if (found.contains(prefix)) known.insert(prefix);
  }
  if (!known.empty()) found = known;
  if (found.empty()) {
    Fail("{}: expected tensors of {} such as {}{}, got none{}", input.path(), layout.name, layout.prefixes[0],
         FillName(layout.rules[0].theirs[0], 0), Hint(input));
  }
  if (found.size() > 1) {
    std::vector<std::string> shown;
    for (const std::string& prefix : found) shown.push_back(Quoted(prefix));
    Fail("{}: expected tensors of {} under one prefix, got {} (--prefix chooses)", input.path(), layout.name,
         fmt::join(shown, " and "));
  }
  return *found.begin();
}

// Collects matches and checks that they are a whole model's.
class Collector {
 public:
  Collector(const ConvertInput& input, const Layout& layout, bool ours)
      : input_(input), layout_(layout), ours_(ours) {}

  void Add(size_t tensor, size_t rule, int64_t layer) {
    const int64_t key = layout_.rules[rule].sublayer == kHead ? kHeadLayer : layer;
    const auto [at, is_new] = found_.emplace(std::pair(key, rule), tensor);
    if (!is_new) {
      Fail("{}: expected one of {} and {}, got both", input_.path(), input_.tensors()[at->second].name,
           input_.tensors()[tensor].name);
    }
  }

  // layers: how many there should be; 0 if not known.
  void Finish(int64_t layers, Matches* matches) const {
    matches->layers = layers > 0 ? layers : std::max<int64_t>(1, LastLayer() + 1);
    matches->has_head = !layout_.HeadIsOptional() || Has(kHeadLayer);
    ExpectNoGap(matches->layers);
    ExpectAll(*matches);
    for (const auto& [key, tensor] : found_) {
      matches->tensors.push_back(
          {tensor, &layout_.rules[key.second], key.first == kHeadLayer ? 0 : key.first});
    }
    for (int pass = 0; pass < 2; ++pass) {  // what one tensor tells may be needed to learn from another
      for (const Match& match : matches->tensors) {
        if (match.layer == 0) LearnSizes(Symbols(*match.rule), Tensor(match).shape, &matches->sizes);
      }
    }
    for (const Match& match : matches->tensors) ExpectShape(match, matches->sizes);
  }

 private:
  const TensorView& Tensor(const Match& match) const { return input_.tensors()[match.tensor]; }
  const std::vector<Extent>& Symbols(const TensorRule& rule) const {
    return ours_ ? rule.our_shape : rule.their_shape;
  }
  bool Has(int64_t layer) const {
    const auto at = found_.lower_bound({layer, 0});
    return at != found_.end() && at->first.first == layer;
  }
  int64_t LastLayer() const {
    auto at = found_.lower_bound({kHeadLayer, 0});
    return at == found_.begin() ? -1 : std::prev(at)->first.first;
  }
  void ExpectNoGap(int64_t layers) const {
    for (int64_t layer = 0; layer < layers; ++layer) {
      if (Has(layer)) continue;
      Fail("{}: expected {} 0 to {} without a gap, got none of {}", input_.path(),
           ours_ ? "sites of layers" : "layers", layers - 1, layer);
    }
  }
  void ExpectAll(const Matches& matches) const {
    std::vector<std::string> missing;
    const auto expect = [&](size_t rule, int64_t key, int64_t layer) {
      if (found_.contains({key, rule})) return;
      const Match match{0, &layout_.rules[rule], layer};
      missing.push_back(ours_ ? matches.OurName(match) : matches.TheirName(match));
    };
    for (size_t rule = 0; rule < layout_.rules.size(); ++rule) {
      const bool head = layout_.rules[rule].sublayer == kHead;
      if (head && matches.has_head) expect(rule, kHeadLayer, 0);
      for (int64_t layer = 0; !head && layer < matches.layers; ++layer) expect(rule, layer, layer);
    }
    if (missing.empty()) return;
    const size_t more = missing.size() - std::min(missing.size(), kMostNamed);
    missing.resize(missing.size() - more);
    Fail("{}: expected a tensor {}{}, got none", input_.path(), fmt::join(missing, " and "),
         more > 0 ? fmt::format(" and {} more", more) : "");
  }
  void ExpectShape(const Match& match, const ModelSizes& sizes) const {
    static const std::set<std::string> kFloats = {"F64", "F32", "F16", "BF16"};
    const TensorView& tensor = Tensor(match);
    const std::vector<Extent>& symbols = Symbols(*match.rule);
    const std::vector<int64_t> shape = ShapeOf(symbols, sizes);
    if (tensor.shape != shape || tensor.bytes == 0) {
      Fail("{}: {}: expected shape {} with n = {}, d = {}, r = {} (the first tensors'), got [{}]",
           input_.path(), tensor.name, ShapeInSymbols(symbols), sizes.slots, sizes.dim, sizes.rank,
           fmt::join(tensor.shape, ", "));
    }
    if (!kFloats.contains(tensor.dtype)) {
      Fail("{}: {}: expected F64, F32, F16 or BF16, got {}", input_.path(), tensor.name, tensor.dtype);
    }
  }

  const ConvertInput& input_;
  const Layout& layout_;
  bool ours_;
  std::map<std::pair<int64_t, size_t>, size_t> found_;  // (layer, rule) -> tensor
};

// config.json's num_hidden_layers, or 0.
int64_t LayersOf(const ConvertInput& input, const Layout& layout) {
  for (const ConfigKey& key : layout.config) {
    if (key.means != ConfigKey::Means::kLayers) continue;
    const nlohmann::json value = input.Config(key.key);
    if (value.is_null()) return 0;
    if (!value.is_number_unsigned() || value.get<uint64_t>() - 1 >= 1'000'000'000) {
      Fail("{}: {}: expected a number of layers from 1 on, got {}", input.config_path(), key.key,
           value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    }
    return value.get<int64_t>();
  }
  return 0;
}

}  // namespace

std::string Matches::OurName(const Match& match) const {
  return kOurs + FillName(match.rule->ours, match.site());
}

std::string Matches::TheirName(const Match& match) const {
  return prefix + FillName(match.rule->theirs[0], match.layer);
}

Matches MatchTheirs(const ConvertInput& input, const Layout& layout,
                    const std::optional<std::string>& prefix) {
  Matches matches;
  matches.prefix = prefix ? *prefix : FindPrefix(input, layout);
  const int64_t layers = LayersOf(input, layout);
  Collector collector(input, layout, false);
  std::set<int64_t> beyond;
  bool any = false;
  for (size_t i = 0; i < input.tensors().size(); ++i) {
    const std::string_view name = input.tensors()[i].name;
    std::optional<int64_t> layer;
    size_t rule = 0;
    for (; name.starts_with(matches.prefix) && rule < layout.rules.size(); ++rule) {
      layer = MatchRule(layout.rules[rule], name.substr(matches.prefix.size()));
      if (layer) break;
    }
    any = any || layer;
    if (layer && layers > 0 && *layer >= layers) beyond.insert(*std::exchange(layer, std::nullopt));
    layer ? collector.Add(i, rule, *layer) : matches.others.push_back(i);
  }
  if (!any) {
    Fail("{}: expected tensors of {} such as {}{}, got none{}", input.path(), layout.name, matches.prefix,
         FillName(layout.rules[0].theirs[0], 0), Hint(input));
  }
  if (!beyond.empty()) {
    matches.notes.push_back(
        fmt::format("layers from {} on are beyond config.json's number of layers ({}): not "
                    "converted",
                    *beyond.begin(), layers));
  }
  collector.Finish(layers, &matches);
  return matches;
}

Matches MatchOurs(const ConvertInput& input, const Layout& layout) {
  Matches matches;
  Collector collector(input, layout, true);
  std::map<std::string, std::vector<int64_t>> residual;
  std::vector<std::string> unknown;
  for (size_t i = 0; i < input.tensors().size(); ++i) {
    const TensorView& tensor = input.tensors()[i];
    if (!tensor.name.starts_with(kOurs)) {
      matches.others.push_back(i);
      continue;
    }
    const std::string name = tensor.name.substr(std::string(kOurs).size());
    residual[name] = tensor.shape;
    bool known = false;
    for (size_t rule = 0; !known && rule < layout.rules.size(); ++rule) {
      const TensorRule& r = layout.rules[rule];
      const auto site = MatchName(r.ours, name);
      known = site && (r.sublayer == kHead || *site % 2 == r.sublayer);
      if (known) collector.Add(i, rule, *site / 2);
    }
    if (!known) unknown.push_back(tensor.name);
  }
  if (residual.empty()) {
    Fail("{}: expected tensors named residual.sites..., got none{}", input.path(), Hint(input));
  }
  const std::string mechanism = MechanismOf(residual);
  if (mechanism != layout.mechanism) {
    Fail("{}: expected the tensors of {} for {}, got {}", input.path(), layout.mechanism, layout.name,
         mechanism.empty() ? "those of no mechanism" : "those of " + mechanism);
  }
  if (!unknown.empty()) {
    Fail("{}: expected tensors that {} has a name for, got {}", input.path(), layout.name,
         fmt::join(unknown, " and "));
  }
  collector.Finish(0, &matches);
  return matches;
}

}  // namespace strata
