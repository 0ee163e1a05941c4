#ifndef STRATA_TOOLS_FLAGS_H_
#define STRATA_TOOLS_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/options.h"

namespace strata {

// The command line of one subcommand: options from the structs' lists, in groups, with defaults in --help.
//
//   Flags flags("train", "Trains one model.");
//   flags.AddAll(&config, "Model", {"vocab"});        all fields but those named
//   flags.Switch("resume", &resume, "...", "Output");
//   if (!flags.Parse(argc, argv)) return 0;           --help was printed
class Flags {
 public:
  Flags(const std::string& command, const std::string& description);

  void Add(const std::string& name, int64_t* field, const std::string& help, const std::string& group);
  void Add(const std::string& name, double* field, const std::string& help, const std::string& group);
  void Add(const std::string& name, std::string* field, const std::string& help, const std::string& group);
  void Add(const std::string& name, std::vector<std::string>* field, const std::string& help,
           const std::string& group);
  // Arguments without a name, at most `most` of them.
  void Positionals(const std::string& name, int most, std::vector<std::string>* field,
                   const std::string& help);
  void Switch(const std::string& name, bool* field, const std::string& help, const std::string& group);

  template <class Options>
  void AddAll(Options* options, const std::string& group, const std::set<std::string>& except = {}) {
    Options::Visit(*options, [&](const char* name, auto& field, const char* help) {
      if (!except.contains(name)) Add(name, &field, help, group);
    });
  }

  // False if --help was asked for (and printed). Error (exit 2), one line, for anything that is wrong.
  bool Parse(int argc, char** argv);
  // Names given on the command line.
  const std::set<std::string>& given() const { return given_; }
  void Require(const std::string& name) const;  // Error (exit 2) if it was not given

 private:
  template <class T>
  void AddParsed(const std::string& name, T* field, const std::string& help, const std::string& group,
                 const char* type, const std::string& shown);

  std::string command_;
  CLI::App app_;
  std::vector<std::string> names_;
  std::set<std::string> given_;
};

// Reads `--config FILE` into the options whose names were not given on the command line.
template <class... Options>
void ReadConfigFile(const std::string& path, const std::string& text, const Flags& flags,
                    const std::set<std::string>& others, Options*... options) {
  ReadOptions(path, ParseJsonObject(path, text), flags.given(), others, options...);
}

}  // namespace strata

#endif  // STRATA_TOOLS_FLAGS_H_
