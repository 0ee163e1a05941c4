#include "residual/manifold.h"

#include <complex>

#include "base/parallel.h"
#include "residual/decide.h"

namespace strata {
namespace {
constexpr int64_t kChunk = 64;  // tokens
}  // namespace

template <class T>
Manifold<T>::Manifold(const Size& size, const ManifoldOptions& options, const ManifoldStart& start,
                      const std::string& rows)
    : Mechanism<T>(size),
      options_(options),
      joint_(options.slots, size.dim, {options.slots, options.slots, static_cast<int>(start.keep.size())},
             options.norm_eps),
      collapse_(options.collapse, options.slots, size.dim, options.norm_eps, options.read_eps) {
  const int n = options.slots;
  for (int site = 0; site < size.sites; ++site) {
    std::vector<double> bias;
    for (int k = 0; k < n; ++k) bias.push_back(k == site % n ? start.read_home : start.read_else);
    for (int k = 0; k < n; ++k) bias.push_back(k == site % n ? start.write_home : start.write_else);
    bias.insert(bias.end(), start.keep.begin(), start.keep.end());
    offsets_.push_back(this->Declare(joint_.Parameters(fmt::format("sites.{}.", site), std::move(bias), rows,
                                                       "[3] of the logits of read, write, keep")));
  }
  offsets_.push_back(this->Declare(collapse_.Parameters()));
}

template <class T>
Rule Manifold<T>::At(int site) const {
  if (IsHead(site)) return collapse_.At();
  Rule rule;
  rule.slots = options_.slots;
  rule.saved = joint_.saved();
  rule.read = rule.write = Coef::kToken;
  rule.keep = Coef::kMatrix;
  rule.reads_update = true;
  return rule;
}

template <class T>
void Manifold<T>::Control(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const {
  const T* of_site = Of(p, site);
  if (IsHead(site)) return collapse_.Control(of_site, s, coefs);
  const int n = options_.slots, outputs = joint_.outputs();
  const T eps = T(static_cast<RealOf<T>>(options_.read_eps));
  ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
    static thread_local std::vector<T> logits;
    logits.resize(static_cast<size_t>(kChunk * outputs));
    joint_.Project(of_site, s, begin, end, coefs->saved.data());
    for (int64_t t = begin; t < end; ++t) {
      T* of_token = logits.data() + (t - begin) * outputs;
      joint_.Logits(of_site, coefs->saved.data() + t * outputs, of_token);
      for (int k = 0; k < n; ++k) {
        coefs->read[t * n + k] = Sigmoid(of_token[k]) + eps;
        coefs->write[t * n + k] = T(2) * Sigmoid(of_token[n + k]);
      }
    }
    Keep(end - begin, logits.data() + 2 * n, outputs, coefs->keep.data() + begin * n * n);
  });
}

template <class T>
void Manifold<T>::ControlVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                             const State<T>& ds, T* dp) const {
  const T* of_site = Of(p, site);
  T* dp_of_site = dp + offsets_[static_cast<size_t>(site)];
  if (IsHead(site)) return collapse_.ControlVjp(of_site, s, coefs, dcoefs, ds, dp_of_site);
  const int n = options_.slots, outputs = joint_.outputs();
  T* all = dcoefs->saved.data();
  ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
    static thread_local std::vector<T> logits;
    logits.resize(static_cast<size_t>(kChunk * outputs));
    for (int64_t t = begin; t < end; ++t) {
      T *of_token = logits.data() + (t - begin) * outputs, *g = all + t * outputs;
      joint_.Logits(of_site, coefs.saved.data() + t * outputs, of_token);
      for (int k = 0; k < n; ++k) {
        const T read = Sigmoid(of_token[k]), write = Sigmoid(of_token[n + k]);
        g[k] = dcoefs->read[t * n + k] * read * (T(1) - read);
        g[n + k] = dcoefs->write[t * n + k] * T(2) * write * (T(1) - write);
      }
    }
    KeepVjp(end - begin, logits.data() + 2 * n, outputs, dcoefs->keep.data() + begin * n * n,
            all + begin * outputs + 2 * n);
  });
  joint_.Vjp(of_site, s, coefs.saved.data(), all, ds, dp_of_site);
}

template <class T>
std::vector<Intermediate> Manifold<T>::Inside(int site, const T* p, const State<T>& s,
                                              const Coefs<T>& coefs) const {
  if (IsHead(site)) return collapse_.Inside(Of(p, site), s, coefs);
  return joint_.Inside(Of(p, site), s.tokens, coefs.saved.data());
}

template class Manifold<float>;
template class Manifold<double>;
template class Manifold<std::complex<double>>;

}  // namespace strata
