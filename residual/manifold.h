#ifndef STRATA_RESIDUAL_MANIFOLD_H_
#define STRATA_RESIDUAL_MANIFOLD_H_

#include <string>
#include <vector>

#include "residual/collapse.h"
#include "residual/joint_logits.h"

namespace strata {

struct ManifoldOptions {
  int slots = 4;
  double read_eps = 0;  // added to read, and to the weights of the head
  double norm_eps = 1e-6;
  std::string collapse = "mean";
};

// Initial biases of the logits. A home slot, another for every site, keeps slots from staying equal for ever.
struct ManifoldStart {
  double read_home, read_else, write_home, write_else;
  std::vector<double> keep;
};

// What mhc, mhc-lite and krom have in common: n slots, mixed at every site by a doubly stochastic matrix.
// With v all n slots of a token as one vector of n dim numbers:
//   logits = scale * (projection v / sqrt(mean(v^2) + norm_eps)) + bias      in the order read, write, keep
//   read   = sigmoid(logits) + read_eps      write = 2 sigmoid(logits)      keep (to, from): the subclass
//   x      = sum_k read[k] S_k               S'_j  = sum_k keep[j,k] S_k + write[j] u
// The head: see Collapse.
//   parameter                  shape               decays
//   sites.s.projection.weight  [2n + keep, n dim]  yes
//   sites.s.scale              [3]                 no      read, write, keep
//   sites.s.bias               [2n + keep]         no
// coefs.saved: see JointLogits.
template <class T>
class Manifold : public Mechanism<T> {
 public:
  // rows: shape of projection.weight in symbols, and its rows.
  Manifold(const Size& size, const ManifoldOptions& options, const ManifoldStart& start,
           const std::string& rows);
  Rule At(int site) const override;
  void Control(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const override;
  void ControlVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                  const State<T>& ds, T* dp) const override;
  bool doubly_stochastic() const override { return true; }
  std::vector<Intermediate> Inside(int site, const T* p, const State<T>& s,
                                   const Coefs<T>& coefs) const override;

 protected:
  int slots() const { return options_.slots; }

 private:
  // keep [tokens, n, n] from its logits and back; a token's logits are `stride` apart from the next one's.
  // Both are assigned.
  virtual void Keep(int64_t tokens, const T* logits, int64_t stride, T* keep) const = 0;
  virtual void KeepVjp(int64_t tokens, const T* logits, int64_t stride, const T* dkeep, T* dlogits) const = 0;

  bool IsHead(int site) const { return site == this->sites(); }
  const T* Of(const T* p, int site) const { return p + offsets_[static_cast<size_t>(site)]; }

  ManifoldOptions options_;
  JointLogits<T> joint_;
  Collapse<T> collapse_;
  std::vector<int64_t> offsets_;  // of the parameters of each site and of the head
};

}  // namespace strata

#endif  // STRATA_RESIDUAL_MANIFOLD_H_
