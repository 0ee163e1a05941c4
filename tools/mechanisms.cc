#include <fmt/format.h>

#include "base/error.h"
#include "tools/commands.h"
#include "tools/common.h"
#include "tools/flags.h"
#include "tools/mechanism_page.h"

namespace strata {
namespace {

void PrintList(bool json, bool markdown) {
  if (json) return PrintJson(MechanismNames());
  if (markdown) {
    fmt::print(
        "# Mechanisms\n\nWritten by `strata mechanisms --markdown`. Letters: d dim, n slots, s site (two "
        "sites a "
        "block: attention,\nthen MLP), S slots, x a sublayer's input, u its output, N(v) = v / "
        "sqrt(mean(v^2) + eps). "
        "Matrices over slots are (to, from).\n\n");
  }
  for (const std::string& name : MechanismNames()) {
    if (markdown) {
      fmt::print("{}", MechanismMarkdown(name));
    } else {
      fmt::print("{:<12} {}\n", name, DescriptionOf(name).summary);
    }
  }
}

int32_t Checked(const char* name, int64_t value, int64_t most) {
  if (value < 1 || value > most) FailUsage("--{}: expected 1 to {}, got {}", name, most, value);
  return static_cast<int32_t>(value);
}

}  // namespace

int RunMechanisms(int argc, char** argv) {
  bool json = false, markdown = false, report = false;
  int64_t sites = 4, dim = 64, seed = 1;
  std::vector<std::string> names;
  Flags flags("mechanisms",
              "Lists the residual connections that --residual takes; for one of them: equations, options, "
              "parameters and how it starts.");
  flags.Positionals("NAME", 1, &names, "a mechanism, with options or without: mhc or mhc:slots=2");
  flags.Switch("init-report", &report, "draw the initial values of NAME and measure them", "Output");
  flags.Add("sites", &sites, "sublayers of the model (two a block)", "Model");
  flags.Add("dim", &dim, "width of the model", "Model");
  flags.Add("seed", &seed, "of the initial values", "Model");
  flags.Switch("markdown", &markdown, "print everything as Markdown (docs/mechanisms.md)", "Output");
  flags.Switch("json", &json, "print the result as JSON", "Output");
  if (!flags.Parse(argc, argv)) return 0;
  const Size size{Checked("sites", sites, 1 << 16), Checked("dim", dim, 1 << 20), 0};
  if (seed < 0) FailUsage("--seed: expected at least 0, got {}", seed);
  if (names.empty()) {
    if (report) FailUsage("--init-report: expected the NAME of a mechanism");
    PrintList(json, markdown);
    return 0;
  }
  const ResidualSpec spec = ParseResidual(names[0]);
  const auto stream = static_cast<uint64_t>(seed);
  if (report) {
    json ? PrintJson(InitReportJson(spec, size, stream))
         : fmt::print("{}", InitReportText(spec, size, stream));
  } else if (markdown) {
    fmt::print("{}", MechanismMarkdown(spec.name));
  } else {
    json ? PrintJson(MechanismJson(spec, size)) : fmt::print("{}", MechanismText(spec, size));
  }
  return 0;
}

}  // namespace strata
