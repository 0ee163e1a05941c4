#ifndef STRATA_MODEL_CONVERT_MATCH_H_
#define STRATA_MODEL_CONVERT_MATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/convert_input.h"
#include "model/convert_layouts.h"

namespace strata {

// One tensor of the residual connection and the rule for it.
struct Match {
  size_t tensor;  // index into the input's tensors
  const TensorRule* rule;
  int64_t layer;
  int64_t site() const { return 2 * layer + rule->sublayer; }
};

struct Matches {
  std::string prefix;  // of the layout's names
  int64_t layers = 0;
  bool has_head = false;
  ModelSizes sizes;
  std::vector<Match> tensors;  // site by site, the head last: every one that the layout asks for
  std::vector<size_t> others;  // the input's further tensors
  std::vector<std::string> notes;
  std::string OurName(const Match& match) const;
  std::string TheirName(const Match& match) const;  // as the layout writes it
};

// Finds the tensors of a layout among the input's, under `prefix` or the one prefix that they have there.
// Layers from config.json's num_hidden_layers on (a model may keep those of its further predictions there)
// are others. Errors (exit 1): none found, several prefixes, a gap in the layers, a tensor missing, there
// twice, misshapen or not of floating-point numbers.
Matches MatchTheirs(const ConvertInput& input, const Layout& layout,
                    const std::optional<std::string>& prefix);

// The same among strata's names. Error (exit 1) also for tensors of another mechanism.
Matches MatchOurs(const ConvertInput& input, const Layout& layout);

}  // namespace strata

#endif  // STRATA_MODEL_CONVERT_MATCH_H_
