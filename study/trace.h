#ifndef STRATA_STUDY_TRACE_H_
#define STRATA_STUDY_TRACE_H_

#include <nlohmann/json.hpp>
#include <string>

#include "study/trace_case.h"

namespace strata {

// Runs a case in double precision, forward and (with a cotangent) backward: every input, update, coefficient,
// state and gradient under the names of docs/trace.md. Error (exit 1): a number that overflows a double.
nlohmann::ordered_json Trace(const TraceCase& c);

// The same as a table to follow step by step.
std::string TraceText(const TraceCase& c, const nlohmann::ordered_json& trace);

}  // namespace strata

#endif  // STRATA_STUDY_TRACE_H_
