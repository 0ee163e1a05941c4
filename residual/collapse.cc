#include "residual/collapse.h"

#include <cmath>
#include <complex>

#include "base/parallel.h"
#include "residual/decide.h"

namespace strata {
namespace {
constexpr int64_t kChunk = 64;  // tokens
}  // namespace

template <class T>
Collapse<T>::Collapse(std::string kind, int slots, int64_t dim, double norm_eps, double added)
    : kind_(std::move(kind)), slots_(slots), added_(added), joint_(slots, dim, {slots}, norm_eps) {}

template <class T>
std::vector<Parameter> Collapse<T>::Parameters() const {
  if (!Decides()) return {};
  const double start = slots_ > 1 ? -std::log(slots_ - 1) : 3;
  return joint_.Parameters("head.", std::vector<double>(static_cast<size_t>(slots_), start),
                           "[n, n d] a row for the weight of each slot", "[1]");
}

template <class T>
Rule Collapse<T>::At() const {
  Rule rule;
  rule.slots = rule.closed = slots_;
  rule.read = kind_ == "sum" ? Coef::kOne : Coef::kToken;
  rule.saved = Decides() ? joint_.saved() : 0;
  return rule;
}

template <class T>
void Collapse<T>::Control(const T* p, const State<T>& s, Coefs<T>* coefs) const {
  if (!Decides()) {
    coefs->read.Fill(T(1) / T(static_cast<RealOf<T>>(slots_)));  // of size 0 where the slots are summed
    return;
  }
  const T added = T(static_cast<RealOf<T>>(added_));
  ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
    joint_.Project(p, s, begin, end, coefs->saved.data());
    for (int64_t t = begin; t < end; ++t) {
      T* read = coefs->read.data() + t * slots_;
      joint_.Logits(p, coefs->saved.data() + t * slots_, read);
      for (int k = 0; k < slots_; ++k) read[k] = Sigmoid(read[k]) + added;
    }
  });
}

template <class T>
void Collapse<T>::ControlVjp(const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                             const State<T>& ds, T* dp) const {
  if (!Decides()) return;
  T* g = dcoefs->saved.data();
  ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      joint_.Logits(p, coefs.saved.data() + t * slots_, g + t * slots_);
      for (int64_t i = t * slots_; i < (t + 1) * slots_; ++i) {
        const T weight = Sigmoid(g[i]);
        g[i] = dcoefs->read[i] * weight * (T(1) - weight);
      }
    }
  });
  joint_.Vjp(p, s, coefs.saved.data(), g, ds, dp);
}

template <class T>
std::vector<Intermediate> Collapse<T>::Inside(const T* p, const State<T>& s, const Coefs<T>& coefs) const {
  if (!Decides()) return {};
  return joint_.Inside(p, s.tokens, coefs.saved.data());
}

template class Collapse<float>;
template class Collapse<double>;
template class Collapse<std::complex<double>>;

}  // namespace strata
