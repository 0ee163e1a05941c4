#ifndef STRATA_RESIDUAL_WALKER_H_
#define STRATA_RESIDUAL_WALKER_H_

#include <cstdint>
#include <vector>

#include "residual/mechanism.h"

namespace strata {

// Carries a residual state through all sites of a model, forward and (in training) backward:
//
//   x = walker.Begin(e, tokens);                       e [tokens, dim], the embedding
//   for f in sublayers: f(x, walker.update()); x = walker.Next();        the last x is what the head reads
//   du = walker.BeginBack(dx);                         dx: gradient of the head's input
//   for f in reverse:  f.Vjp(du, dx); du = walker.Back(dx);              after site 0: dL/de
//
// In training every state value stays where it is until the backward pass: x, and u where it is an appended
// slot, are never copied. In inference the state is written in place and nothing is kept.
template <class T>
class Walker {
 public:
  enum class Mode { kInfer, kTrain };
  Walker(const Mechanism<T>& mechanism, Mode mode);

  // p: the mechanism's parameters, alive until the pass ends. Returns x for site 0; valid until the next
  // Begin in training, until the next Next in inference.
  const T* Begin(const T* p, const T* e, int64_t tokens);
  // The same from given slots [tokens, dim], copied; as many as the mechanism was built for.
  const T* Begin(const T* p, const std::vector<const T*>& slots, int64_t tokens);
  // Where the current site's sublayer puts its output u [tokens, dim]: assigned in full by the sublayer.
  T* update();
  // Applies the write of the current site and returns x for the next one (after the last: the head's x).
  const T* Next();

  // dx [tokens, dim] gradient of the head's x; dp accumulated through the whole backward pass. Returns du of
  // the last site (de if there are no sites), owned by the walker, valid until the next Back.
  const T* BeginBack(const T* dx, T* dp);
  // dx: gradient of the x that Next or Begin returned for the current site. Returns du of the site before it;
  // after site 0, dL/de.
  const T* Back(const T* dx);

  // After the Back that passed site 0: the gradient of each slot at the start.
  const State<T>& slot_gradients() const { return ds_; }

  // For metrics, tests and inspection: what site `site` saw and decided in the last pass (training).
  const Coefs<T>& coefs(int site) const;
  const State<T>& state(int site) const;  // before the write of `site`; at sites(): what the head reads
  const T* u(int site) const;             // null where the mechanism's backward pass does not need it
  int64_t bytes() const;                  // memory held

  // Memory in bytes that one training pass over `tokens` tokens holds, without allocating it.
  static int64_t TrainingBytes(const Mechanism<T>& mechanism, int64_t tokens);

 private:
  MixDims Dims(int slots) const { return {tokens_, mechanism_.dim(), slots}; }
  size_t Index(int site) const { return keeps_ ? static_cast<size_t>(site) : 0; }
  T* Take();                  // the next buffer [tokens, dim] of the pool
  const T* Arrive();          // decides and reads at site_
  void Retreat(const T* dx);  // gradients of what Arrive did at back_
  const T* Undo();            // gradient of the write before back_; steps back
  void SizeCoefs(const Rule& rule, Coefs<T>* coefs) const;

  const Mechanism<T>& mechanism_;
  bool keeps_;
  const T* p_ = nullptr;
  T* dp_ = nullptr;
  int64_t tokens_ = 0;
  int site_ = 0, back_ = 0;  // forward and backward
  // Values: in training one state and one set of coefficients a site, in inference one of each.
  std::vector<Buffer<T>> pool_;
  size_t used_ = 0;
  std::vector<State<T>> states_;
  std::vector<Coefs<T>> coefs_;
  std::vector<T*> updates_;
  Buffer<T> x_, u_;  // where nothing needs to be kept
  // Gradients: one list of slots, threaded back in place.
  std::vector<Buffer<T>> gradients_;
  State<T> ds_;
  Coefs<T> dcoefs_;
  Buffer<T> du_;
};

}  // namespace strata

#endif  // STRATA_RESIDUAL_WALKER_H_
