#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "model/tokenizer.h"
#include "tools/commands.h"

namespace strata {
namespace {

void PrintHelp(std::FILE* to) {
  fmt::print(
      to, "strata: residual connections for Transformers\n\nUsage: strata COMMAND [OPTIONS]\n\nCommands:\n");
  for (const Command& command : kCommands) fmt::print(to, "  {:<12}{}\n", command.name, command.summary);
  fmt::print(to,
             "\n`strata COMMAND --help` shows the options of a command; `strata --version` the version.\n");
}

int Dispatch(int argc, char** argv) {
  if (argc < 2) {
    PrintHelp(stderr);
    return static_cast<int>(ExitCode::kUsage);
  }
  const std::string name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") return PrintHelp(stdout), 0;
  if (name == "--version") return fmt::print("strata {}\n", STRATA_VERSION), 0;
  std::vector<std::string> known;
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run(argc - 1, argv + 1);
    known.emplace_back(command.name);
  }
  FailUsage("{}: unknown command; did you mean {}?", name, Nearest(name, known));
}

int Report(const std::string& message, ExitCode code) {
  std::fflush(stdout);
  PrintMessage("strata: " + Printable(message) + "\n");
  return static_cast<int>(code);
}

// A closed standard stream would lend its number to the next file that is opened. A result written to a
// closed stdout fails, as it would without the stand-in, which can only be read.
void OpenStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    const int mode = fd == STDOUT_FILENO ? O_RDONLY : O_RDWR;
    if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", mode) == -1) std::abort();
  }
}

void CheckArguments(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (FindInvalidUtf8(argv[i]) >= 0) FailUsage("argument {}: expected UTF-8, got other bytes", i);
  }
}

int Main(int argc, char** argv) {
  OpenStandardStreams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk
  try {
    CheckArguments(argc, argv);
    const int code = Dispatch(argc, argv);
    if (std::fflush(stdout) != 0) Fail("standard output: expected to write it, got an error");
    return code;
  } catch (const Error& error) {
    return Report(error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return Report("memory: expected more free memory, got none; smaller sizes help", ExitCode::kFailed);
  } catch (const std::exception& error) {
    return Report(error.what(), ExitCode::kFailed);
  }
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) { return strata::Main(argc, argv); }
