#include "model/convert_spec.h"

#include <map>
#include <optional>

#include "base/error.h"
#include "base/options.h"

namespace strata {
namespace {

using Json = nlohmann::json;
using Means = ConfigKey::Means;

Size SizeOf(const Matches& matches) { return {static_cast<int>(2 * matches.layers), matches.sizes.dim, 0}; }

// Runs f, whose complaints about options are about what IN holds and not about the request.
template <class F>
auto AboutContent(const std::string& where, F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    Fail("{}: {}", where, error.what());
  }
}

// The options of a mechanism with the values that hold where a spec does not name them.
std::map<std::string, std::string> Defaults(const std::string& mechanism, const Matches& matches) {
  std::map<std::string, std::string> defaults;
  for (const OptionDoc& doc : OptionsOf(mechanism, SizeOf(matches))) defaults[doc.name] = doc.fallback;
  return defaults;
}

int64_t SizeNamed(Means means, const Matches& matches) {
  switch (means) {
    case Means::kLayers:
      return matches.layers;
    case Means::kDim:
      return matches.sizes.dim;
    case Means::kSlots:
      return matches.sizes.slots;
    case Means::kRank:
      return matches.sizes.rank;
    case Means::kOption:
      break;
  }
  return 0;
}

// The options that the tensors show, always written out.
void AddSizes(const Layout& layout, const Matches& matches, ResidualSpec* spec) {
  for (const ConfigKey& key : layout.config) {
    if (key.means == Means::kOption || key.option.empty()) continue;
    spec->options[key.option] = fmt::format("{}", SizeNamed(key.means, matches));
  }
}

// The mechanism must declare exactly the tensors that were found.
void ExpectParameters(const ConvertInput& input, const ResidualSpec& spec, const Matches& matches) {
  std::map<std::string, std::vector<int64_t>> found;
  for (const Match& match : matches.tensors) {
    found[matches.OurName(match)] = ShapeOf(match.rule->our_shape, matches.sizes);
  }
  const auto mechanism =
      AboutContent(input.path(), [&] { return MakeMechanism<float>(spec, SizeOf(matches)); });
  for (const Parameter& p : mechanism->Parameters()) {
    const auto at = found.find("residual." + p.name);
    if (at == found.end() || at->second != p.shape) {
      Fail("{}: expected the tensors of {}: residual.{} [{}], got {}", input.path(), ToString(spec), p.name,
           fmt::join(p.shape, ", "),
           at == found.end() ? "none" : fmt::format("[{}]", fmt::join(at->second, ", ")));
    }
    found.erase(at);
  }
  if (!found.empty()) {
    Fail("{}: expected the tensors of {}, got one more: {}", input.path(), ToString(spec),
         found.begin()->first);
  }
}

// A number of config.json as the text of an option; "" if it is not there.
std::string OptionText(const ConvertInput& input, const ConfigKey& key) {
  const Json value = input.Config(key.key);
  if (value.is_null()) return "";
  if (key.factor != 1 && value == 0) Fail("{}: {}: expected at least 1, got 0", input.config_path(), key.key);
  if (value.is_number_unsigned() && value.get<uint64_t>() < 1'000'000'000) {
    return fmt::format("{}", value.get<int64_t>() * key.factor);
  }
  if (!value.is_number() || key.factor != 1) {
    Fail("{}: {}: expected a number, got {}", input.config_path(), key.key, Shown(value));
  }
  return fmt::format("{}", value.get<double>());
}

void ExpectSameModel(const ConvertInput& input, const Layout& layout) {
  const Json type = input.Config("model_type");
  if (layout.other_model.empty() || type != layout.other_model) return;
  Fail("{}: model_type: expected a model of {}, got {} (the same names, but another mechanism)",
       input.config_path(), layout.name, layout.other_model);
}

// Which block holds: what IN says, or --block, and not two of them.
int64_t AgreeOnBlock(const ConvertInput& input, const Layout& layout, const std::string& said,
                     int64_t asked) {
  if (layout.KeyOf("block") == nullptr) {
    if (asked != 0) FailUsage("--block: expected none ({} has no blocks), got {}", layout.mechanism, asked);
    return 0;
  }
  if (asked == 0) return said.empty() ? 0 : std::stoll(said);
  if (!said.empty() && said != fmt::format("{}", asked)) {
    FailUsage("--block: expected {} sublayers (as {} says), got {}", said, input.path(), asked);
  }
  return asked;
}

// The spec that strata's own file names in its metadata, if it does.
std::optional<ResidualSpec> NamedSpec(const ConvertInput& input) {
  const auto residual = input.metadata().find("residual"), config = input.metadata().find("config");
  return AboutContent(input.path(), [&]() -> std::optional<ResidualSpec> {
    if (residual != input.metadata().end()) return ParseResidual(residual->second);
    if (config == input.metadata().end()) return std::nullopt;
    const Json json = ParseJsonObject("config", config->second);
    if (!json.contains("residual")) return std::nullopt;
    std::string text;
    FromJson("config", "residual", json["residual"], &text);
    return ParseResidual(text);
  });
}

// Numbers for config.json of the layout's model.
void AddConfig(const ConvertInput& input, const Layout& layout, const Matches& matches,
               std::map<std::string, std::string> values, ConvertedSpec* spec) {
  for (const ConfigKey& key : layout.config) {
    std::string value = fmt::format("{}", SizeNamed(key.means, matches));
    if (key.means == Means::kOption) value = values[key.option];
    if (key.option == "block") {
      if (spec->block == 0) continue;
      if (spec->block % key.factor != 0) {
        Fail("{}: block: expected a multiple of {} ({} counts layers of two sublayers), got {}", input.path(),
             key.factor, layout.name, spec->block);
      }
      value = fmt::format("{}", spec->block / key.factor);
    }
    spec->config.emplace_back(key.key, value);
  }
}

}  // namespace

ConvertedSpec SpecFromLayout(const ConvertInput& input, const Layout& layout, const Matches& matches,
                             int64_t block) {
  ExpectSameModel(input, layout);
  ConvertedSpec spec;
  spec.residual.name = layout.mechanism;
  std::map<std::string, std::string> defaults = Defaults(layout.mechanism, matches);
  std::string said_block;
  std::vector<std::string> silent;
  for (const ConfigKey& key : layout.config) {
    if (key.means != Means::kOption) {
      const Json value = input.Config(key.key);
      if (!value.is_null() && value != SizeNamed(key.means, matches)) {
        Fail("{}: {}: expected {} (the tensors'), got {}", input.config_path(), key.key,
             SizeNamed(key.means, matches), Shown(value));
      }
      continue;
    }
    const std::string text = OptionText(input, key);
    if (key.option == "block") {
      said_block = text;
    } else if (text.empty()) {
      silent.push_back(fmt::format("{} {} ({})", key.option, defaults[key.option], key.key));
    } else if (text != defaults[key.option]) {
      spec.residual.options[key.option] = text;
    }
  }
  for (const auto& [option, value] : matches.has_head ? layout.with_head : layout.without_head) {
    if (value != defaults[option]) spec.residual.options[option] = value;
    if (!matches.has_head) spec.notes.push_back(fmt::format("there is no head: {}={}", option, value));
  }
  if (!silent.empty()) {
    spec.notes.push_back(
        fmt::format("config.json does not say what is not in the tensors; strata's defaults: {}",
                    fmt::join(silent, ", ")));
  }
  AddSizes(layout, matches, &spec.residual);
  spec.block = AgreeOnBlock(input, layout, said_block, block);
  if (const ConfigKey* key = layout.KeyOf("block"); key != nullptr) {
    if (spec.block == 0) {
      FailUsage(
          "--block: expected the sublayers of a block (there is no {} in a config.json beside IN), got none",
          key->key);
    }
    spec.residual.options["block"] = fmt::format("{}", spec.block);
  }
  ExpectParameters(input, spec.residual, matches);
  return spec;
}

ConvertedSpec SpecToLayout(const ConvertInput& input, const Layout& layout, const Matches& matches,
                           int64_t block) {
  ConvertedSpec spec;
  const std::optional<ResidualSpec> named = NamedSpec(input);
  if (named && named->name != layout.mechanism) {
    Fail("{}: expected weights of {} for {}, got those of {}", input.path(), layout.mechanism, layout.name,
         ToString(*named));
  }
  std::map<std::string, std::string> values = Defaults(layout.mechanism, matches);
  spec.residual.name = layout.mechanism;
  if (named) {
    spec.residual.options = named->options;
    for (const auto& [option, value] : named->options) values[option] = value;
  } else {
    for (const auto& [option, value] : matches.has_head ? layout.with_head : layout.without_head) {
      if (value != values[option]) spec.residual.options[option] = value;
    }
    spec.notes.push_back(
        "IN does not name its options: those that are not in the tensors are taken as strata's defaults");
  }
  for (const auto& [option, value] : layout.fixed) {
    if (values[option] != value) {
      Fail("{}: {}: expected {}={} (all that {} has), got {}", input.path(), ToString(spec.residual), option,
           value, layout.name, values[option]);
    }
  }
  if (layout.HeadIsOptional() && !matches.has_head) {
    spec.notes.push_back(fmt::format("there is no head, which models of {} have", layout.name));
  }
  if (!named) AddSizes(layout, matches, &spec.residual);
  ExpectParameters(input, spec.residual, matches);
  AddSizes(layout, matches, &spec.residual);
  spec.block = AgreeOnBlock(input, layout, named ? values["block"] : "", block);
  if (spec.block > 0) spec.residual.options["block"] = fmt::format("{}", spec.block);
  if (spec.block == 0 && layout.KeyOf("block") != nullptr) {
    spec.notes.push_back("IN does not say how many sublayers a block has (--block does)");
  }
  AddConfig(input, layout, matches, values, &spec);
  return spec;
}

}  // namespace strata
