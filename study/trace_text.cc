#include "base/error.h"
#include "study/trace.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

std::string Number(const ordered_json& value) {
  return value.is_null() ? "-" : fmt::format("{:.9g}", value.get<double>() + 0.0);
}

// One line per innermost list: "  label, axis i, axis j   a  b  c".
void PrintLists(const std::string& label, const std::vector<std::string>& axes, size_t depth,
                const ordered_json& value, std::string* out) {
  const bool last = !value.is_array() || value.empty() || !value.front().is_array();
  if (last) {
    *out += fmt::format("  {:<34}", label);
    for (const ordered_json& number : value) *out += fmt::format(" {:>13}", Number(number));
    *out += "\n";
    return;
  }
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string axis = depth < axes.size() ? axes[depth] + " " : "";
    PrintLists(fmt::format("{}, {}{}", label, axis, i), axes, depth + 1, value[i], out);
  }
}

std::vector<std::string> AxesOf(const std::string& name) {
  if (name == "keep") return {"token", "to"};
  if (name == "state" || name == "read" || name == "write") return {"token", "slot"};
  if (name == "mixing") return {"token", "reader"};
  if (name == "scores") return {"token", "slot"};
  if (name == "linear" || name == "parameter") return {"row"};
  return {"token", "slot"};
}

void PrintNamed(const std::string& name, const ordered_json& value, std::string* out) {
  if (value.is_object()) {
    for (const auto& item : value.items()) PrintNamed(name + " " + item.key(), item.value(), out);
    return;
  }
  PrintLists(name, AxesOf(name.substr(name.rfind(' ') + 1)), 0, value, out);
}

std::string SublayerText(const TraceSublayer& sublayer) {
  if (sublayer.kind == TraceSublayer::Kind::kZero) return "u = 0";
  if (sublayer.kind == TraceSublayer::Kind::kConstant) return "u is given";
  return sublayer.norm ? "u = W N(x)" : "u = W x";
}

std::string Header(const TraceCase& c) {
  const Description& d = DescriptionOf(c.spec.name);
  std::string out = fmt::format("{}: {}\n", ToString(c.spec), d.summary);
  std::string line;
  for (const char* at = d.equations;; ++at) {
    if (*at != '\n' && *at != '\0') {
      line += *at;
      continue;
    }
    out += "  " + line + "\n";
    line.clear();
    if (*at == '\0') break;
  }
  return out + fmt::format("{} token{}, {} channel{}; one row per token, slot or matrix row\n", c.tokens,
                           c.tokens == 1 ? "" : "s", c.dim, c.dim == 1 ? "" : "s");
}

void PrintGradients(const ordered_json& gradients, std::string* out) {
  *out += "\ngradients of <cotangent, output>\n";
  for (const char* start : {"embedding", "state"}) {
    if (gradients.contains(start)) PrintNamed(start, gradients[start], out);
  }
  for (const auto& item : gradients["parameters"].items()) {
    PrintLists(item.key(), AxesOf("parameter"), 0, item.value(), out);
  }
  for (size_t s = 0; s < gradients["sublayers"].size(); ++s) {
    for (const auto& item : gradients["sublayers"][s].items()) {
      PrintLists(fmt::format("sublayer {} {}", s, item.key()), AxesOf(item.key()), 0, item.value(), out);
    }
  }
}

}  // namespace

std::string TraceText(const TraceCase& c, const ordered_json& trace) {
  std::string out = Header(c);
  for (size_t s = 0; s < trace["sites"].size(); ++s) {
    const ordered_json& site = trace["sites"][s];
    out += fmt::format("\nsite {}: {}\n", s, SublayerText(c.sublayers[s]));
    PrintNamed("input x", site["input"], &out);
    PrintNamed("update u", site["update"], &out);
    for (const auto& item : site["coefficients"].items()) PrintNamed(item.key(), item.value(), &out);
    PrintNamed("state", site["state"], &out);
  }
  out += "\nhead\n";
  for (const auto& item : trace["head"]["coefficients"].items()) PrintNamed(item.key(), item.value(), &out);
  PrintNamed("output", trace["output"], &out);
  if (trace.contains("mixing")) {
    out +=
        "\nmixing: what each reader (the last one is the head) reads of the embedding and of each update\n";
    PrintNamed("mixing", trace["mixing"], &out);
  }
  if (trace.contains("gradients")) PrintGradients(trace["gradients"], &out);
  return out;
}

}  // namespace strata
