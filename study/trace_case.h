#ifndef STRATA_STUDY_TRACE_CASE_H_
#define STRATA_STUDY_TRACE_CASE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "residual/held.h"
#include "study/arrays.h"

namespace strata {

// A sublayer of a case: u = W x, u = W N(x), given numbers, or zero.
struct TraceSublayer {
  enum class Kind { kLinear, kConstant, kZero };
  Kind kind = Kind::kZero;
  bool norm = false;
  std::vector<double> values;  // W [dim, dim] (row = output channel) or u [tokens, dim]
};

// One mechanism outside any model, on given numbers: a case file (docs/trace.md), checked in full.
struct TraceCase {
  ResidualSpec spec;
  int64_t dim = 1, tokens = 0;
  bool from_state = false;    // else from the embedding
  std::vector<double> start;  // embedding [tokens, dim] or state [tokens, slots, dim]
  std::vector<TraceSublayer> sublayers;
  std::unique_ptr<Mechanism<double>> mechanism;  // with what is fixed held
  std::vector<double> parameters;                // flat, in the order of mechanism->Parameters()
  double norm_eps = 1e-6;                        // of the sublayers' N
  std::optional<std::vector<double>> cotangent;  // [tokens, dim]

  int sites() const { return mechanism->sites(); }
};

// Errors (exit 2) name the place in the case: not JSON, unknown or repeated keys, wrong types and shapes,
// more numbers than a trace may hold (exit 2), options that the mechanism refuses.
TraceCase ParseTraceCase(const std::string& text);

}  // namespace strata

#endif  // STRATA_STUDY_TRACE_CASE_H_
