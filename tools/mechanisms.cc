#include <fmt/format.h>

#include "residual/mechanism.h"
#include "tools/commands.h"
#include "tools/common.h"
#include "tools/flags.h"

namespace strata {

int RunMechanisms(int argc, char** argv) {
  bool json = false;
  Flags flags("mechanisms", "Lists the residual connections that --residual takes.");
  flags.Switch("json", &json, "print the list as JSON", "Output");
  if (!flags.Parse(argc, argv)) return 0;
  if (json) {
    PrintJson(MechanismNames());
  } else {
    for (const std::string& name : MechanismNames()) fmt::print("{}\n", name);
  }
  return 0;
}

}  // namespace strata
