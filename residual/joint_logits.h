#ifndef STRATA_RESIDUAL_JOINT_LOGITS_H_
#define STRATA_RESIDUAL_JOINT_LOGITS_H_

#include <string>
#include <vector>

#include "residual/mechanism.h"

namespace strata {

// Logits decided by all slots together. With v the slots of a token as one vector of n dim numbers:
//   projection = weight v / sqrt(mean(v^2) + eps)        logits = scale * projection + bias
// The outputs come in groups, each with a scale of its own. Parameters, one after the other from `p` on:
// projection.weight [outputs, n dim], scale [groups], bias [outputs].
//
// saved: projection [tokens, outputs], then 1 / sqrt(mean(v^2) + eps) [tokens].
template <class T>
class JointLogits {
 public:
  static constexpr int kMostSlots = 32;
  // groups: the outputs of each.
  JointLogits(int slots, int64_t dim, const std::vector<int>& groups, double eps);
  int outputs() const { return static_cast<int>(group_.size()); }
  int64_t saved() const { return outputs() + 1; }
  // rows: shape of the weight in symbols and what its rows are.
  std::vector<Parameter> Parameters(const std::string& prefix, std::vector<double> bias,
                                    const std::string& rows, const std::string& scales) const;

  // Assigns `saved` of tokens [begin, end), at most 64.
  void Project(const T* p, const State<T>& s, int64_t begin, int64_t end, T* saved) const;
  // One token's logits from its projection.
  void Logits(const T* p, const T* projection, T* logits) const;
  // g [tokens, outputs]: in dL/dlogits, free afterwards; behind it lies scratch [tokens]. ds, dp accumulated.
  void Vjp(const T* p, const State<T>& s, const T* saved, T* g, const State<T>& ds, T* dp) const;
  // logits and projection of all tokens.
  std::vector<Intermediate> Inside(const T* p, int64_t tokens, const T* saved) const;

 private:
  int64_t width() const { return slots_ * dim_; }
  int64_t scale() const { return outputs() * width(); }  // offsets
  int64_t bias() const { return scale() + groups_; }

  int slots_, groups_;
  int64_t dim_;
  double eps_;
  std::vector<int> group_;  // of each output
};

}  // namespace strata

#endif  // STRATA_RESIDUAL_JOINT_LOGITS_H_
