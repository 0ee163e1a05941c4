#ifndef STRATA_RESIDUAL_COLLAPSE_H_
#define STRATA_RESIDUAL_COLLAPSE_H_

#include <string>
#include <vector>

#include "residual/joint_logits.h"

namespace strata {

// How the head makes one vector of n slots:
//   mean   sum_k S_k / n
//   sum    sum_k S_k
//   head   sum_k (sigmoid(logits[k]) + added) S_k, logits from all slots together (JointLogits)
// Parameters of `head`, one after the other from `p` on:
//   parameter               shape       starts at                                    decays
//   head.projection.weight  [n, n dim]  0                                            yes
//   head.scale, head.bias   [1], [n]    0.01, -log(n - 1) (weights of 1/n; n = 1: 3) no
template <class T>
class Collapse {
 public:
  Collapse(std::string kind, int slots, int64_t dim, double norm_eps, double added);
  std::vector<Parameter> Parameters() const;
  // Of the head's site: as the functions of Mechanism.
  Rule At() const;
  void Control(const T* p, const State<T>& s, Coefs<T>* coefs) const;
  void ControlVjp(const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs, const State<T>& ds,
                  T* dp) const;
  std::vector<Intermediate> Inside(const T* p, const State<T>& s, const Coefs<T>& coefs) const;

 private:
  bool Decides() const { return kind_ == "head"; }

  std::string kind_;
  int slots_;
  double added_;
  JointLogits<T> joint_;
};

}  // namespace strata

#endif  // STRATA_RESIDUAL_COLLAPSE_H_
