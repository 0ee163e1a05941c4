#include "residual/mechanism.h"

#include <complex>

#include "base/error.h"
#include "base/random.h"
#include "residual/attnres.h"
#include "residual/dense.h"
#include "residual/gated.h"
#include "residual/hc.h"
#include "residual/highway.h"
#include "residual/krom.h"
#include "residual/mhc.h"
#include "residual/mhc_lite.h"
#include "residual/review.h"
#include "residual/scaled.h"
#include "residual/standard.h"
#include "residual/x0.h"

namespace strata {
namespace {

template <class T>
struct Entry {
  const char* name;
  const Description* description;
  std::unique_ptr<Mechanism<T>> (*make)(OptionReader* options, const Size& size);
};

template <class T>
const Entry<T> kMechanisms[] = {
    {"standard", &kStandardDescription, &MakeStandard<T>},
    {"highway", &kHighwayDescription, &MakeHighway<T>},
    {"state-gate", &kStateGateDescription, &MakeStateGate<T>},
    {"review", &kReviewDescription, &MakeReview<T>},
    {"hc", &kHcDescription, &MakeHc<T>},
    {"mhc", &kMhcDescription, &MakeMhc<T>},
    {"mhc-lite", &kMhcLiteDescription, &MakeMhcLite<T>},
    {"krom", &kKromDescription, &MakeKrom<T>},
    {"gated", &kGatedDescription, &MakeGated<T>},
    {"attnres", &kAttnResDescription, &MakeAttnRes<T>},
    {"dense", &kDenseDescription, &MakeDense<T>},
    {"rezero", &kReZeroDescription, &MakeReZero<T>},
    {"layerscale", &kLayerScaleDescription, &MakeLayerScale<T>},
    {"x0", &kX0Description, &MakeX0<T>},
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

std::vector<std::string> MechanismNames() {
  std::vector<std::string> names;
  for (const Entry<float>& entry : kMechanisms<float>) names.emplace_back(entry.name);
  return names;
}

template <class T>
static const Entry<T>& Find(const std::string& name) {
  for (const Entry<T>& entry : kMechanisms<T>) {
    if (name == entry.name) return entry;
  }
  FailUnknownName(name);
}

const Description& DescriptionOf(const std::string& name) { return *Find<double>(name).description; }

std::vector<OptionDoc> OptionsOf(const std::string& name, const Size& size) {
  const ResidualSpec spec{name, {}};
  OptionReader options(spec);
  Find<double>(name).make(&options, size);
  return options.docs();
}

template <class T>
std::unique_ptr<Mechanism<T>> MakeMechanism(const ResidualSpec& spec, const Size& size) {
  if (size.sites < 1) FailUsage("residual: expected at least 1 site, got {}", size.sites);
  if (size.dim < 1) FailUsage("residual: expected a dim of at least 1, got {}", size.dim);
  OptionReader options(spec);
  auto mechanism = Find<T>(spec.name).make(&options, size);
  options.Finish();
  return mechanism;
}

std::vector<double> InitialValues(const std::vector<Parameter>& parameters, const std::string& prefix,
                                  uint64_t seed) {
  std::vector<double> values;
  for (const Parameter& p : parameters) {
    const auto size = static_cast<size_t>(p.size());
    switch (p.init.kind) {
      case Init::Kind::kConstant:
        values.insert(values.end(), size, p.init.value);
        break;
      case Init::Kind::kNormal: {
        Random random(seed, HashName(prefix + p.name));
        for (size_t i = 0; i < size; ++i) values.push_back(p.init.value * random.Normal());
        break;
      }
      case Init::Kind::kValues:
        if (p.init.values.size() != size) {
          Fail("{}: expected {} initial values, got {}", p.name, size, p.init.values.size());
        }
        values.insert(values.end(), p.init.values.begin(), p.init.values.end());
        break;
    }
  }
  return values;
}

template std::unique_ptr<Mechanism<float>> MakeMechanism(const ResidualSpec&, const Size&);
template std::unique_ptr<Mechanism<double>> MakeMechanism(const ResidualSpec&, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeMechanism(const ResidualSpec&, const Size&);

}  // namespace strata
