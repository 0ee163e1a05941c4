#include "tools/mechanism_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "base/error.h"
#include "study/arrays.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

std::string Indented(const std::string& text, const std::string& indent) {
  std::istringstream lines(text);
  std::string line, out;
  while (std::getline(lines, line)) out += indent + line + "\n";
  return out;
}

// "sites.s." for the site that a name belongs to.
std::string General(const std::string& name) {
  if (name.rfind("sites.", 0) != 0) return name;
  return "sites.s" + name.substr(name.find('.', 6));
}

// What a parameter's initial values are, in words; a list of values only where it is short.
std::string InitText(const Init& init) {
  if (init.kind == Init::Kind::kConstant) return fmt::format("{:g}", init.value);
  if (init.kind == Init::Kind::kNormal) return fmt::format("N(0, {:g}^2)", init.value);
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, init.values.size()); ++i)
    text += fmt::format("{:.4g} ", init.values[i]);
  if (init.values.size() > kShown) return text + fmt::format("... ({} numbers)", init.values.size());
  text.pop_back();
  return text;
}

// The parameters of one site and the head: the first of each general name.
std::vector<Parameter> Kinds(const std::vector<Parameter>& parameters) {
  std::vector<Parameter> kinds;
  std::set<std::string> seen;
  for (const Parameter& p : parameters) {
    if (!seen.insert(General(p.name)).second) continue;
    kinds.push_back(p);
    kinds.back().name = General(p.name);
  }
  return kinds;
}

std::vector<Parameter> ParametersOf(const ResidualSpec& spec, const Size& size) {
  return MakeMechanism<double>(spec, size)->Parameters();
}

int64_t Count(const std::vector<Parameter>& parameters) {
  int64_t sum = 0;
  for (const Parameter& p : parameters) sum += p.size();
  return sum;
}

}  // namespace

std::string MechanismText(const ResidualSpec& spec, const Size& size) {
  const Description& d = DescriptionOf(spec.name);
  const std::vector<Parameter> parameters = ParametersOf(spec, size);
  std::string text = fmt::format("{}: {}\n\nSource\n  {}\n\nEquations\n{}", ToString(spec), d.summary,
                                 d.source, Indented(d.equations, "  "));
  text += "\nOptions\n";
  const std::vector<OptionDoc> options = OptionsOf(spec.name, size);
  if (options.empty()) text += "  none\n";
  for (const OptionDoc& o : options) {
    text += fmt::format("  {:<12} {:<10} {} ({})\n", o.name, o.fallback, o.about, o.range);
  }
  text +=
      fmt::format("\nParameters ({} sites of dim {}: {} numbers)\n", size.sites, size.dim, Count(parameters));
  if (parameters.empty()) text += "  none\n";
  for (const Parameter& p : Kinds(parameters)) {
    text += fmt::format("  {:<28} {:<12} {}\n{:31}starts at {}{}\n", p.name, ShapeText(p.shape), p.about, "",
                        InitText(p.init), p.decays ? "; decays" : "");
  }
  text += fmt::format("\nAt the start\n{}", Indented(d.at_start, "  "));
  if (*d.deviations != 0)
    text += fmt::format("\nDeviations from the source\n{}", Indented(d.deviations, "  "));
  return text;
}

std::string MechanismMarkdown(const std::string& name) {
  const Size size{4, 64, 0};
  const ResidualSpec spec{name, {}};
  const Description& d = DescriptionOf(name);
  std::string text = fmt::format("## `{}`\n\n{}.\n\nSource: {}.\n\n```\n{}\n```\n\n", name, d.summary,
                                 d.source, d.equations);
  const std::vector<OptionDoc> options = OptionsOf(name, size);
  if (!options.empty()) text += "| option | default | range | |\n|---|---|---|---|\n";
  for (const OptionDoc& o : options) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", o.name, o.fallback, o.range, o.about);
  }
  const std::vector<Parameter> kinds = Kinds(ParametersOf(spec, size));
  if (!kinds.empty()) text += "\n| parameter | shape and meaning | starts at | decays |\n|---|---|---|---|\n";
  for (const Parameter& p : kinds) {
    text +=
        fmt::format("| `{}` | {} | {} | {} |\n", p.name, p.about, InitText(p.init), p.decays ? "yes" : "no");
  }
  text += fmt::format("\nAt the start: {}.\n", d.at_start);
  if (*d.deviations != 0) text += fmt::format("\nDeviations: {}.\n", d.deviations);
  return text + "\n";
}

ordered_json MechanismJson(const ResidualSpec& spec, const Size& size) {
  const Description& d = DescriptionOf(spec.name);
  ordered_json json{{"name", spec.name},          {"residual", ToString(spec)}, {"summary", d.summary},
                    {"source", d.source},         {"equations", d.equations},   {"at_start", d.at_start},
                    {"deviations", d.deviations}, {"sites", size.sites},        {"dim", size.dim}};
  json["options"] = ordered_json::array();
  for (const OptionDoc& o : OptionsOf(spec.name, size)) {
    json["options"].push_back(
        {{"name", o.name}, {"default", o.fallback}, {"range", o.range}, {"about", o.about}});
  }
  json["parameters"] = ordered_json::array();
  const std::vector<Parameter> parameters = ParametersOf(spec, size);
  for (const Parameter& p : parameters) {
    json["parameters"].push_back({{"name", p.name},
                                  {"shape", p.shape},
                                  {"about", p.about},
                                  {"init", InitText(p.init)},
                                  {"decays", p.decays}});
  }
  json["numbers"] = Count(parameters);
  return json;
}

ordered_json InitReportJson(const ResidualSpec& spec, const Size& size, uint64_t seed) {
  const std::vector<Parameter> parameters = ParametersOf(spec, size);
  const std::vector<double> values = InitialValues(parameters, "residual.", seed);
  ordered_json report = ordered_json::array();
  size_t at = 0;
  for (const Parameter& p : parameters) {
    const auto n = static_cast<size_t>(p.size());
    double mean = 0, square = 0, least = n > 0 ? values[at] : 0, most = least;
    for (size_t i = at; i < at + n; ++i) mean += values[i] / static_cast<double>(n);
    for (size_t i = at; i < at + n; ++i) {
      square += (values[i] - mean) * (values[i] - mean) / static_cast<double>(n);
      least = std::min(least, values[i]);
      most = std::max(most, values[i]);
    }
    at += n;
    report.push_back({{"name", p.name},
                      {"shape", p.shape},
                      {"mean", mean},
                      {"deviation", std::sqrt(square)},
                      {"least", least},
                      {"most", most},
                      {"specification", InitText(p.init)},
                      {"decays", p.decays}});
  }
  return report;
}

std::string InitReportText(const ResidualSpec& spec, const Size& size, uint64_t seed) {
  std::string text = fmt::format(
      "{}: initial values for {} sites of dim {}, seed {}\n\n{:<28} {:<12} {:>11} {:>11} {:>11} {:>11}  "
      "specification\n",
      ToString(spec), size.sites, size.dim, seed, "parameter", "shape", "mean", "deviation", "least", "most");
  for (const auto& p : InitReportJson(spec, size, seed)) {
    text += fmt::format("{:<28} {:<12} {:>11.4g} {:>11.4g} {:>11.4g} {:>11.4g}  {}\n",
                        p["name"].get<std::string>(), ShapeText(p["shape"].get<std::vector<int64_t>>()),
                        p["mean"].get<double>(), p["deviation"].get<double>(), p["least"].get<double>(),
                        p["most"].get<double>(), p["specification"].get<std::string>());
  }
  return text;
}

}  // namespace strata
