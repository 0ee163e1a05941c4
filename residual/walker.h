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
//
// Between two sublayers lies a seam: the write of one site, then what the next one decides and reads. A seam
// runs a few tokens at a time, whose rows stay in the cache from the first step to the last, forward and
// backward; how tokens are grouped depends on the mechanism's size alone and changes no result of a token.
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

  // For metrics, tests and inspection: what site `site` saw and decided in the last pass (training). Of
  // coefs, `saved` is grouped like the tokens, so only Inside understands it.
  Coefs<T> coefs(int site) const { return CoefsOf(site).All(); }
  const State<T>& state(int site) const;  // before the write of `site`; at sites(): what the head reads
  const T* u(int site) const;             // null where the mechanism's backward pass does not need it
  // The mechanism's own numbers at a site, of all tokens.
  std::vector<Intermediate> Inside(int site) const;
  int64_t bytes() const;  // memory held

  // Memory in bytes that one training pass over `tokens` tokens holds, without allocating it.
  static int64_t TrainingBytes(const Mechanism<T>& mechanism, int64_t tokens);

 private:
  // Parameters of a site as places in the flat array.
  struct Places {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };

  // The write of one site, as the seam behind it sees it.
  struct Seam {
    Rule rule;
    const State<T>& state;
    CoefBuffers<T>* coefs;
    const T* u;
    int site;
  };

  static std::vector<Places> PlacesOf(const Mechanism<T>& mechanism);
  static int64_t SlabNumbers(const Mechanism<T>& mechanism, int64_t tokens);
  MixDims Dims(int64_t tokens, int slots) const { return {tokens, mechanism_.dim(), slots}; }
  size_t Index(int site) const { return keeps_ ? static_cast<size_t>(site) : 0; }
  CoefBuffers<T>& CoefsOf(int site) const { return coefs_[static_cast<size_t>(keeps_ ? site : site % 2)]; }
  CoefBuffers<T>& dcoefs(int site) { return dcoefs_[site % 2]; }
  template <class F>
  void ForRows(F&& f) const;
  template <class F>
  void ForSlabs(const Places& places, F&& f);
  T* Take();                                // the next buffer [tokens, dim] of the pool
  void Prepare();                           // memory of the coefficients, u and x of site_
  void PrepareWrite(const Rule& rule);      // memory of the state behind site_
  void Decide(int64_t begin, int64_t end);  // coefficients and x of site_
  void WriteRows(const Seam& seam, int64_t begin, int64_t end);
  T* UpdateGradient(const Rule& rule);                             // of u before back_: where it will be
  void DecideVjp(const T* dx, int64_t begin, int64_t end, T* dp);  // of what Decide did at back_
  void WriteVjpRows(const Rule& rule, int site, T* du, int64_t begin, int64_t end, T* dp);

  const Mechanism<T>& mechanism_;
  bool keeps_;
  int64_t rows_ = 0;            // tokens of a seam's group; 0: all
  std::vector<Places> places_;  // of each site's parameters, then the head's
  const T* p_ = nullptr;
  T* dp_ = nullptr;
  int64_t tokens_ = 0;
  int site_ = 0, back_ = 0;  // forward and backward
  // Values: in training one state and one set of coefficients a site, in inference one state and the
  // coefficients on both sides of a seam.
  std::vector<Buffer<T>> pool_;
  size_t used_ = 0;
  std::vector<State<T>> states_;
  mutable std::vector<CoefBuffers<T>> coefs_;  // All() of a const walker gives const slices only to readers
  std::vector<T*> updates_;
  T* x_of_site_ = nullptr;
  Buffer<T> x_, u_;  // where nothing needs to be kept
  // Gradients: one list of slots, threaded back in place.
  std::vector<Buffer<T>> gradients_;
  State<T> ds_;
  CoefBuffers<T> dcoefs_[2];  // of even and odd sites
  Buffer<T> du_;
  Buffer<T> slabs_;  // parameter gradients of each slab
};

}  // namespace strata

#endif  // STRATA_RESIDUAL_WALKER_H_
