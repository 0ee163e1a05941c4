#include "residual/mechanism.h"

#include <complex>

#include "base/error.h"
#include "residual/attnres.h"
#include "residual/mhc.h"
#include "residual/standard.h"

namespace strata {
namespace {

template <class T>
struct Entry {
  const char* name;
  std::unique_ptr<Mechanism<T>> (*make)(const ResidualSpec& spec, int sites, int64_t dim);
};

template <class T>
constexpr Entry<T> kMechanisms[] = {
    {"standard", &MakeStandard<T>},
    {"attnres", &MakeAttnRes<T>},
    {"mhc", &MakeMhc<T>},
};

[[noreturn]] void FailUnknownName(const std::string& name) {
  const std::vector<std::string> names = MechanismNames();
  FailUsage("residual: unknown mechanism \"{}\"; did you mean \"{}\"? Known: {}", name, Nearest(name, names),
            fmt::join(names, ", "));
}

}  // namespace

ResidualSpec ParseResidual(const std::string& text) {
  ResidualSpec spec;
  const size_t colon = text.find(':');
  spec.name = text.substr(0, colon);
  bool known = false;
  for (const std::string& name : MechanismNames()) known = known || name == spec.name;
  if (!known) FailUnknownName(spec.name);
  if (colon == std::string::npos) return spec;
  for (size_t begin = colon + 1, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(',', begin);
    const std::string item = text.substr(begin, end == std::string::npos ? end : end - begin);
    const size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == item.size()) {
      FailUsage("residual: expected NAME[:option=value,...], got \"{}\" in \"{}\"", item, text);
    }
    if (!spec.options.emplace(item.substr(0, equals), item.substr(equals + 1)).second) {
      FailUsage("residual: expected each option once, got \"{}\" twice in \"{}\"", item.substr(0, equals),
                text);
    }
  }
  return spec;
}

std::string ToString(const ResidualSpec& spec) {
  std::string text = spec.name;
  char separator = ':';
  for (const auto& [name, value] : spec.options) {
    text += separator + name + "=" + value;
    separator = ',';
  }
  return text;
}

std::vector<std::string> MechanismNames() {
  std::vector<std::string> names;
  for (const Entry<float>& entry : kMechanisms<float>) names.emplace_back(entry.name);
  return names;
}

template <class T>
std::unique_ptr<Mechanism<T>> MakeMechanism(const ResidualSpec& spec, int sites, int64_t dim) {
  if (sites < 1) FailUsage("residual: expected at least 1 site, got {}", sites);
  if (dim < 1) FailUsage("residual: expected a dim of at least 1, got {}", dim);
  for (const Entry<T>& entry : kMechanisms<T>) {
    if (spec.name == entry.name) return entry.make(spec, sites, dim);
  }
  FailUnknownName(spec.name);
}

template std::unique_ptr<Mechanism<float>> MakeMechanism(const ResidualSpec&, int, int64_t);
template std::unique_ptr<Mechanism<double>> MakeMechanism(const ResidualSpec&, int, int64_t);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeMechanism(const ResidualSpec&, int, int64_t);

}  // namespace strata
