#ifndef STRATA_TOOLS_MECHANISM_PAGE_H_
#define STRATA_TOOLS_MECHANISM_PAGE_H_

#include <nlohmann/json.hpp>
#include <string>

#include "residual/mechanism.h"

namespace strata {

// What strata knows about a mechanism, from the same declarations that the program runs on.

// As text for a terminal; shapes for a model of `size`.
std::string MechanismText(const ResidualSpec& spec, const Size& size);
// As a section of docs/mechanisms.md.
std::string MechanismMarkdown(const std::string& name);
nlohmann::ordered_json MechanismJson(const ResidualSpec& spec, const Size& size);

// Mean, deviation, least and largest of each parameter's initial values beside what is specified.
nlohmann::ordered_json InitReportJson(const ResidualSpec& spec, const Size& size, uint64_t seed);
std::string InitReportText(const ResidualSpec& spec, const Size& size, uint64_t seed);

}  // namespace strata

#endif  // STRATA_TOOLS_MECHANISM_PAGE_H_
