#include "model/convert_layouts.h"

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace strata {
namespace {

using enum Extent;

std::string Replaced(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), with);
}

// The rules of a kind of tensor that both sublayers have: SUB stands for the words of `sublayers`, one for
// every spelling that is read.
struct SiteRule {
  std::vector<std::string> theirs;
  std::string ours;
  std::vector<Extent> their_shape, our_shape;
  Change change = Change::kNone;
};
std::vector<TensorRule> Rules(const std::vector<std::string>& sublayers, const std::vector<SiteRule>& sites,
                              const std::vector<SiteRule>& head) {
  std::vector<TensorRule> rules;
  for (int sublayer = 0; sublayer < 2; ++sublayer) {
    for (const SiteRule& r : sites) {
      TensorRule rule{{}, "sites.{}." + r.ours, sublayer, r.their_shape, r.our_shape, r.change};
      for (const std::string& name : r.theirs) {
        rule.theirs.push_back("layers.{}." + Replaced(name, "SUB", sublayers[static_cast<size_t>(sublayer)]));
      }
      rules.push_back(std::move(rule));
    }
  }
  for (const SiteRule& r : head) {
    rules.push_back({r.theirs, "head." + r.ours, kHead, r.their_shape, r.our_shape, r.change});
  }
  return rules;
}

// DeepSeek-V4 (and transformers' port of it, the second spelling): rows pre, post, comb[source][destination].
Layout DeepSeekV4() {
  const std::vector<Extent> fn = {kLogits, kWide}, base = {kLogits}, head_fn = {kSlots, kWide};
  return {"deepseek-v4",
          "mhc",
          {"", "model."},
          Rules({"attn", "ffn"},
                {{{"hc_SUB_fn", "SUB_hc.fn"}, "projection.weight", fn, fn, Change::kTransposeKeep},
                 {{"hc_SUB_scale", "SUB_hc.scale"}, "scale", {kThree}, {kThree}},
                 {{"hc_SUB_base", "SUB_hc.base"}, "bias", base, base, Change::kTransposeKeep}},
                {{{"hc_head_fn", "hc_head.hc_fn"}, "projection.weight", head_fn, head_fn},
                 {{"hc_head_scale", "hc_head.hc_scale"}, "scale", {kOne}, {kOne}},
                 {{"hc_head_base", "hc_head.hc_base"}, "bias", {kSlots}, {kSlots}}}),
          {{"collapse", "head"}},
          {{"collapse", "mean"}},
          {{"form", "v4"}},
          {{"num_hidden_layers", ConfigKey::Means::kLayers, ""},
           {"hidden_size", ConfigKey::Means::kDim, ""},
           {"hc_mult", ConfigKey::Means::kSlots, "slots"},
           {"hc_sinkhorn_iters", ConfigKey::Means::kOption, "iterations"},
           {"hc_eps", ConfigKey::Means::kOption, "eps"},
           {"rms_norm_eps", ConfigKey::Means::kOption, "norm-eps"}},
          "deepseek_v41"};
}

// Kimi K3: score = proj . (norm.weight * S / rms(S)); attn_res_block_size counts layers of two sublayers.
Layout KimiK3() {
  return {
      "kimi-k3",
      "attnres",
      {"language_model.model.", "model.", ""},
      Rules({"self_attention", "mlp"},
            {{{"SUB_res_proj.weight"}, "query", {kOne, kDim}, {kDim}, Change::kReshape},
             {{"SUB_res_norm.weight"}, "norm.weight", {kDim}, {kDim}}},
            {{{"output_attn_res_proj.weight"}, "query", {kOne, kDim}, {kDim}, Change::kReshape},
             {{"output_attn_res_norm.weight"}, "norm.weight", {kDim}, {kDim}}}),
      {},
      {},
      {{"weights", "softmax"}, {"query", "learned"}, {"heads", "1"}, {"window", "0"}, {"key-norm", "true"}},
      {{"num_hidden_layers", ConfigKey::Means::kLayers, ""},
       {"hidden_size", ConfigKey::Means::kDim, ""},
       {"attn_res_block_size", ConfigKey::Means::kOption, "block", 2},
       {"rms_norm_eps", ConfigKey::Means::kOption, "eps"}},
      ""};
}

// Gated Residual as Qwen releases it; hc_norm is the gain - 1, as here.
Layout QwenGr() {
  const SiteRule norm{{"hc_norm.weight"}, "norm.weight", {kWide}, {kSlots, kDim}, Change::kReshape};
  const SiteRule down{{"input_mix_weight_down.weight"}, "down.weight", {kRank, kWide}, {kRank, kWide}};
  const SiteRule up{{"input_mix_weight_up.weight"}, "up.weight", {kWide, kRank}, {kWide, kRank}};
  const SiteRule write{{"block_inject_weight.weight"}, "write.weight", {kSlots, kWide}, {kSlots, kWide}};
  const auto in = [](const std::string& module, SiteRule rule) {
    rule.theirs[0] = module + "." + rule.theirs[0];
    return rule;
  };
  const auto site = [&](const SiteRule& rule) { return in("SUB_hyper_connection", rule); };
  const auto head = [&](const SiteRule& rule) { return in("hyper_connection_mixer", rule); };
  return {"qwen-gr",
          "gated",
          {"model.language_model.", "model.", ""},
          Rules({"attn", "mlp"}, {site(norm), site(down), site(up), site(write)},
                {head(norm), head(down), head(up)}),
          {{"head", "gated"}},
          {{"head", "mean"}},
          {},
          {{"num_hidden_layers", ConfigKey::Means::kLayers, ""},
           {"hidden_size", ConfigKey::Means::kDim, ""},
           {"hc_count", ConfigKey::Means::kSlots, "slots"},
           {"hc_lowrank", ConfigKey::Means::kRank, "rank"},
           {"rms_norm_eps", ConfigKey::Means::kOption, "eps"}},
          ""};
}

// n of n^2 + 2n = (n + 1)^2 - 1, or 0.
int64_t SlotsOfLogits(int64_t rows) {
  if (rows < 3 || rows > 1'000'000) return 0;
  const auto n = static_cast<int64_t>(std::sqrt(static_cast<double>(rows + 1)) + 0.5) - 1;
  return n * n + 2 * n == rows ? n : 0;
}

// The family of mhc differs in the rows of keep alone.
std::string FamilyOfRows(int64_t rows) {
  if (SlotsOfLogits(rows) > 0) return "mhc";
  int64_t permutations = 1;
  for (int64_t n = 1; n <= 5; ++n) {
    permutations *= n;
    if (rows == 2 * n + permutations) return "mhc-lite";
  }
  for (int64_t n = 2, factors = 1; n <= 32; n *= 2, ++factors) {
    if (rows == 2 * n + 2 * factors) return "krom";
  }
  return "mhc";
}

}  // namespace

std::string ShapeInSymbols(const std::vector<Extent>& shape) {
  static const char* const kSymbols[] = {"1", "3", "n", "d", "r", "n d", "n^2 + 2n"};
  std::vector<std::string> symbols;
  for (const Extent extent : shape) symbols.emplace_back(kSymbols[static_cast<size_t>(extent)]);
  return fmt::format("[{}]", fmt::join(symbols, ", "));
}

std::vector<int64_t> ShapeOf(const std::vector<Extent>& shape, const ModelSizes& sizes) {
  const int64_t n = sizes.slots;
  const int64_t values[] = {1, 3, n, sizes.dim, sizes.rank, n * sizes.dim, n * n + 2 * n};
  std::vector<int64_t> extents;
  for (const Extent extent : shape) extents.push_back(values[static_cast<size_t>(extent)]);
  return extents;
}

void LearnSizes(const std::vector<Extent>& symbols, const std::vector<int64_t>& shape, ModelSizes* sizes) {
  if (symbols.size() != shape.size()) return;
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto learn = [&](int64_t* size, int64_t value) {
      if (*size == 0 && value > 0 && value < int64_t{1} << 31) *size = value;
    };
    if (symbols[i] == kSlots) learn(&sizes->slots, shape[i]);
    if (symbols[i] == kLogits) learn(&sizes->slots, SlotsOfLogits(shape[i]));
    if (symbols[i] == kDim) learn(&sizes->dim, shape[i]);
    if (symbols[i] == kRank) learn(&sizes->rank, shape[i]);
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (symbols[i] == kWide && sizes->dim == 0 && sizes->slots > 0 && shape[i] % sizes->slots == 0) {
      sizes->dim = shape[i] / sizes->slots;
    }
  }
}

const ConfigKey* Layout::KeyOf(const std::string& option) const {
  for (const ConfigKey& key : config) {
    if (!option.empty() && key.option == option) return &key;
  }
  return nullptr;
}

const std::vector<Layout>& Layouts() {
  static const std::vector<Layout> kLayouts = {DeepSeekV4(), KimiK3(), QwenGr()};
  return kLayouts;
}

std::vector<std::string> LayoutNames() {
  std::vector<std::string> names;
  for (const Layout& layout : Layouts()) names.push_back(layout.name);
  return names;
}

const Layout& LayoutOf(const std::string& option, const std::string& name) {
  for (const Layout& layout : Layouts()) {
    if (layout.name == name) return layout;
  }
  const std::vector<std::string> names = LayoutNames();
  FailUsage("--{}: expected {}, got {}; did you mean {}?", option, fmt::join(names, " or "), name,
            Nearest(name, names));
}

std::optional<int64_t> MatchName(std::string_view pattern, std::string_view text) {
  const size_t hole = pattern.find("{}");
  if (hole == std::string_view::npos) return pattern == text ? std::optional<int64_t>(0) : std::nullopt;
  const std::string_view before = pattern.substr(0, hole), after = pattern.substr(hole + 2);
  if (text.size() <= before.size() + after.size() || !text.starts_with(before) || !text.ends_with(after)) {
    return std::nullopt;
  }
  const std::string_view digits = text.substr(hole, text.size() - before.size() - after.size());
  int64_t number = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool plain = digits.size() <= 9 && digits[0] != '-' && (digits[0] != '0' || digits.size() == 1);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size() || !plain) return std::nullopt;
  return number;
}

std::string FillName(const std::string& pattern, int64_t number) {
  return Replaced(pattern, "{}", fmt::format("{}", number));
}

std::string MechanismOf(const std::map<std::string, std::vector<int64_t>>& shapes) {
  static const std::pair<const char*, const char*> kTells[] = {
      {"static.read", "hc"},        {"gate.state", "review"}, {"gate.weight", "highway"},
      {"projection.weight", "mhc"}, {"down.weight", "gated"}, {"query", "attnres"},
      {"query.weight", "attnres"},  {"logits", "attnres"}};
  for (const auto& [name, shape] : shapes) {
    for (const auto& [tell, mechanism] : kTells) {
      if (!MatchName("sites.{}." + std::string(tell), name)) continue;
      return mechanism == std::string("mhc") && !shape.empty() ? FamilyOfRows(shape[0]) : mechanism;
    }
  }
  return "";
}

}  // namespace strata
