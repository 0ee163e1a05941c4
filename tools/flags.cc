#include "tools/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace strata {
namespace {

// Two columns: `--name TYPE` and the help with its default.
class Formatter : public CLI::Formatter {
 public:
  Formatter() { column_width(28); }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
  std::string make_option_usage(const CLI::Option* option) const override {
    return "[" + option->get_name(true) + "]";
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string& value = option->get_default_str();
    return option->get_description() + (value.empty() ? "" : " [" + value + "]");
  }
};

}  // namespace

Flags::Flags(const std::string& command, const std::string& description)
    : command_(command), app_(description, "strata " + command) {
  app_.formatter(std::make_shared<Formatter>());
  app_.set_help_flag("");
  app_.allow_extras();
}

template <class T>
void Flags::AddParsed(const std::string& name, T* field, const std::string& help, const std::string& group,
                      const char* type, const std::string& shown) {
  names_.push_back(name);
  app_.add_option_function<std::string>(
          "--" + name, [name, field](const std::string& text) { ParseOption(name, text, field); }, help)
      ->group(group)
      ->type_name(type)
      ->default_str(shown);
}

void Flags::Add(const std::string& name, int64_t* field, const std::string& help, const std::string& group) {
  AddParsed(name, field, help, group, "INT", std::to_string(*field));
}

void Flags::Add(const std::string& name, double* field, const std::string& help, const std::string& group) {
  AddParsed(name, field, help, group, "NUMBER", fmt::format("{}", *field));
}

void Flags::Add(const std::string& name, std::string* field, const std::string& help,
                const std::string& group) {
  AddParsed(name, field, help, group, "TEXT", *field);
}

void Flags::Add(const std::string& name, std::vector<std::string>* field, const std::string& help,
                const std::string& group) {
  names_.push_back(name);
  app_.add_option("--" + name, *field, help)->group(group)->type_name("PATH...")->expected(1, -1);
}

void Flags::Positionals(const std::string& name, int most, std::vector<std::string>* field,
                        const std::string& help) {
  app_.add_option(name, *field, help)->type_name("")->expected(0, most);
}

void Flags::Switch(const std::string& name, bool* field, const std::string& help, const std::string& group) {
  names_.push_back(name);
  app_.add_flag("--" + name, *field, help)->group(group);
}

bool Flags::Parse(int argc, char** argv) {
  app_.set_help_flag("--help,-h", "show this help")->group("Output");  // last: groups appear in order of use
  try {
    app_.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app_.help());
    return false;
  } catch (const CLI::ParseError& error) {
    FailUsage("{}: {}", command_, error.what());
  }
  const std::vector<std::string> extras = app_.remaining();
  if (!extras.empty()) {
    std::string name = extras[0].substr(0, extras[0].find('='));
    if (name.rfind("--", 0) != 0) FailUsage("{}: expected options only, got {}", command_, extras[0]);
    name = name.substr(2);
    FailUsage("{}: unknown option --{}; did you mean --{}?", command_, name, Nearest(name, names_));
  }
  for (const std::string& name : names_) {
    if (app_.count("--" + name) > 0) given_.insert(name);
  }
  return true;
}

void Flags::Require(const std::string& name) const {
  if (!given_.contains(name)) FailUsage("{}: expected --{}, got none", command_, name);
}

}  // namespace strata
