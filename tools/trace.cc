#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/progress.h"
#include "study/trace.h"
#include "tools/commands.h"
#include "tools/common.h"
#include "tools/flags.h"

namespace strata {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;

void TraceFile(const std::string& path, bool json) {
  const std::string text = ReadFile(path, kMostBytes);
  try {
    const TraceCase c = ParseTraceCase(text);
    const nlohmann::ordered_json trace = Trace(c);
    json ? PrintJson(trace) : fmt::print("{}", TraceText(c, trace));
  } catch (const Error& error) {
    throw Error(path + ": " + error.what(), error.code());
  }
}

}  // namespace

int RunTrace(int argc, char** argv) {
  bool json = false;
  std::vector<std::string> paths;
  Flags flags(
      "trace",
      "Runs one mechanism in double precision on the numbers of a JSON file and prints every step, forward "
      "and backward (docs/trace.md; examples in docs/examples).");
  flags.Positionals("CASE", 1 << 16, &paths, "JSON files");
  flags.Switch("json", &json, "print one JSON object per file", "Output");
  if (!flags.Parse(argc, argv)) return 0;
  if (paths.empty()) FailUsage("trace: expected CASE.json..., got none");
  for (size_t i = 0; i < paths.size(); ++i) {
    if (!json && paths.size() > 1) fmt::print("{}== {}\n", i > 0 ? "\n" : "", paths[i]);
    TraceFile(paths[i], json);
  }
  return 0;
}

}  // namespace strata
