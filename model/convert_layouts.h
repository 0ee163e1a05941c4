#ifndef STRATA_MODEL_CONVERT_LAYOUTS_H_
#define STRATA_MODEL_CONVERT_LAYOUTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// How released checkpoints lay out the tensors of their residual connections, as data: for each layout a
// table of names, shapes and what happens to the numbers on the way to strata's own names (docs/convert.md).

// Extents of a tensor in symbols: n slots, d width, r rank.
enum class Extent { kOne, kThree, kSlots, kDim, kRank, kWide /* n d */, kLogits /* n^2 + 2n */ };
struct ModelSizes {
  int64_t slots = 0, dim = 0, rank = 0;  // 0: the layout has none, or not known yet
};
std::string ShapeInSymbols(const std::vector<Extent>& shape);
// 0 where a size is not known.
std::vector<int64_t> ShapeOf(const std::vector<Extent>& shape, const ModelSizes& sizes);
// Fills the sizes that are 0 and that a tensor of this shape tells.
void LearnSizes(const std::vector<Extent>& symbols, const std::vector<int64_t>& shape, ModelSizes* sizes);

// What happens to the numbers; the same both ways. Bits never change.
enum class Change {
  kNone,
  kReshape,        // same numbers in the same order
  kTransposeKeep,  // rows 2n.. are an n x n matrix, row-major: (source, destination) there, (to, from) here
};

// One kind of tensor. In names, {} stands for the layer (theirs) and the site (ours).
struct TensorRule {
  std::vector<std::string> theirs;  // after the prefix; all are read, the first is written
  std::string ours;
  int sublayer = 0;  // 0 attention: site 2 layer; 1 MLP: site 2 layer + 1; kHead
  std::vector<Extent> their_shape, our_shape;
  Change change = Change::kNone;
};
inline constexpr int kHead = 2;

// A number of the model's config.json: one that the tensors show, or an option of the mechanism that they
// don't.
struct ConfigKey {
  enum class Means { kLayers, kDim, kSlots, kRank, kOption };
  std::string key;
  Means means;
  std::string option;  // with kOption
  int64_t factor = 1;  // the option is `factor` times their number
};

struct Layout {
  std::string name, mechanism;
  std::vector<std::string> prefixes;  // that releases use; the first is written by default
  std::vector<TensorRule> rules;
  // Options that say whether there is a head; both empty: there is always one.
  std::map<std::string, std::string> with_head, without_head;
  std::map<std::string, std::string> fixed;  // options that the layout has no other value for
  std::vector<ConfigKey> config;
  std::string other_model;  // a model_type of config.json with the same names and another meaning
  bool HeadIsOptional() const { return !(with_head.empty() && without_head.empty()); }
  const ConfigKey* KeyOf(const std::string& option) const;
};

const std::vector<Layout>& Layouts();
std::vector<std::string> LayoutNames();
// Error (exit 2) `--option: expected ..., got NAME; did you mean ...?`
const Layout& LayoutOf(const std::string& option, const std::string& name);

// The number in the place of {} (0 for a pattern without one), if `text` is such a name. Numbers are as
// written by a program: no sign, no leading zero, below 10^9.
std::optional<int64_t> MatchName(std::string_view pattern, std::string_view text);
std::string FillName(const std::string& pattern, int64_t number);

// The mechanism whose tensors these are, by names (after `residual.`) and, for the family of mhc, rows; "" if
// there is none like it.
std::string MechanismOf(const std::map<std::string, std::vector<int64_t>>& shapes);

}  // namespace strata

#endif  // STRATA_MODEL_CONVERT_LAYOUTS_H_
