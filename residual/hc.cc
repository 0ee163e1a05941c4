#include "residual/hc.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>

#include "base/parallel.h"
#include "residual/collapse.h"
#include "residual/decide.h"
#include "residual/row_norm.h"

namespace strata {
namespace {

constexpr int64_t kChunk = 32;   // tokens
constexpr int64_t kBlock = 256;  // tokens whose normed rows the backward pass holds at once

struct HcOptions {
  int slots = 4;
  bool dynamic = true, tanh = true, layer = true;
  double eps = 1e-5;
  std::string collapse = "sum";
};

template <class T>
class Hc : public Mechanism<T> {
 public:
  Hc(const Size& size, const HcOptions& options);
  Rule At(int site) const override;
  void Control(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const override;
  void ControlVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                  const State<T>& ds, T* dp) const override;
  std::vector<Intermediate> Inside(int site, const T* p, const State<T>& s,
                                   const Coefs<T>& coefs) const override;

 private:
  struct Offsets {
    int64_t gain = 0, bias = 0, read = 0, write = 0, keep = 0, scale = 0;  // unused where static
    int64_t static_read = 0, static_write = 0, static_keep = 0;            // one after the other
  };
  // The vectors that rows without gain and bias are multiplied with: phi [n + 2, dim], of read, write and
  // keep to every slot; shift [n + 2]: what the norm's bias adds to the products.
  struct Folded {
    std::vector<T> phi, shift;
  };

  bool IsHead(int site) const { return site == this->sites(); }
  int TermCount() const { return options_.slots + 2; }
  const Offsets& Of(int site) const { return offsets_[static_cast<size_t>(site)]; }
  // Channel d of vector i (read, write, keep to every slot).
  int64_t Place(const Offsets& o, int i, int64_t d) const {
    return i == 0 ? o.read + d : i == 1 ? o.write + d : o.keep + d * options_.slots + i - 2;
  }
  void DeclareDynamic(const std::string& prefix);
  void DeclareStatic(const std::string& prefix, int home);
  Folded Fold(int site, const T* p) const;
  void Terms(const Folded& folded, const State<T>& s, int64_t begin, int64_t end, T* terms) const;
  void Decide(int site, const T* p, int64_t begin, int64_t end, Coefs<T>* coefs) const;
  void TermsVjp(int site, const T* p, int64_t tokens, const T* terms, Coefs<T>* dcoefs, double* dshift,
                T* dp) const;
  void RowsVjp(int slot, const Folded& folded, const State<T>& s, const T* g, const State<T>& ds,
               T* dphi) const;

  HcOptions options_;
  RowNorm<T> norm_;
  Collapse<T> collapse_;
  std::vector<Offsets> offsets_;
  int64_t head_ = 0;
};

template <class T>
Hc<T>::Hc(const Size& size, const HcOptions& options)
    : Mechanism<T>(size),
      options_(options),
      norm_(size.dim, options.layer, options.eps),
      collapse_(options.collapse, options.slots, size.dim, options.eps, 0) {
  for (int site = 0; site < size.sites; ++site) {
    const std::string prefix = fmt::format("sites.{}.", site);
    offsets_.emplace_back();
    if (options.dynamic) DeclareDynamic(prefix);
    DeclareStatic(prefix, site % options.slots);
  }
  head_ = this->Declare(collapse_.Parameters());
}

template <class T>
void Hc<T>::DeclareDynamic(const std::string& prefix) {
  Offsets& o = offsets_.back();
  const int64_t dim = this->dim();
  const Init zero, one{Init::Kind::kConstant, 1, {}}, small{Init::Kind::kConstant, 0.01, {}};
  o.gain = this->Declare(prefix + "norm.weight", {dim}, one, false, "[d] gain of the norm of each slot");
  if (options_.layer) o.bias = this->Declare(prefix + "norm.bias", {dim}, zero, false, "[d] its bias");
  o.read = this->Declare(prefix + "dynamic.read", {dim}, zero, true, "[d] a slot's own read");
  o.write = this->Declare(prefix + "dynamic.write", {dim}, zero, true, "[d] a slot's own write");
  o.keep = this->Declare(prefix + "dynamic.keep", {dim, options_.slots}, zero, true,
                         "[d, n] where a slot goes: column = to");
  o.scale = this->Declare(prefix + "scale", {2}, small, false, "[2] of dynamic read and keep, of write");
}

template <class T>
void Hc<T>::DeclareStatic(const std::string& prefix, int home) {
  Offsets& o = offsets_.back();
  const int n = options_.slots;
  Init read{Init::Kind::kValues, 0, std::vector<double>(static_cast<size_t>(n), 0.0)}, keep = read;
  read.values[static_cast<size_t>(home)] = 1;
  keep.values.assign(static_cast<size_t>(n * n), 0.0);
  for (int k = 0; k < n; ++k) keep.values[static_cast<size_t>(k * n + k)] = 1;
  o.static_read = this->Declare(prefix + "static.read", {n}, std::move(read), false, "[n]");
  o.static_write = this->Declare(prefix + "static.write", {n}, {Init::Kind::kConstant, 1, {}}, false, "[n]");
  o.static_keep = this->Declare(prefix + "static.keep", {n, n}, std::move(keep), false, "[n, n] (to, from)");
}

template <class T>
Rule Hc<T>::At(int site) const {
  if (IsHead(site)) return collapse_.At();
  Rule rule;
  rule.slots = options_.slots;
  rule.saved = options_.dynamic ? rule.slots * TermCount() : 0;
  rule.read = rule.write = Coef::kToken;
  rule.keep = Coef::kMatrix;
  rule.reads_update = true;
  return rule;
}

template <class T>
typename Hc<T>::Folded Hc<T>::Fold(int site, const T* p) const {
  const Offsets& o = Of(site);
  const int64_t dim = this->dim();
  Folded folded{std::vector<T>(static_cast<size_t>(TermCount() * dim)),
                std::vector<T>(static_cast<size_t>(TermCount()))};
  for (int i = 0; i < TermCount(); ++i) {
    Wide<T> shift = Wide<T>(0);
    for (int64_t d = 0; d < dim; ++d) {
      const T w = p[Place(o, i, d)];
      folded.phi[static_cast<size_t>(i * dim + d)] = w * p[o.gain + d];
      if (options_.layer) shift += Wide<T>(w) * Wide<T>(p[o.bias + d]);
    }
    folded.shift[static_cast<size_t>(i)] = static_cast<T>(shift);
  }
  return folded;
}

// The terms of tokens [begin, end), at most kChunk.
template <class T>
void Hc<T>::Terms(const Folded& folded, const State<T>& s, int64_t begin, int64_t end, T* terms) const {
  static thread_local Buffer<T> rows, dot;
  const int64_t dim = this->dim(), n = options_.slots, m = TermCount();
  rows.Resize(kChunk * dim);
  dot.Resize(kChunk * m);
  for (int64_t k = 0; k < n; ++k) {
    const T* slot = s.slots[static_cast<size_t>(k)];
    for (int64_t t = begin; t < end; ++t) norm_.Apply(slot + t * dim, rows.data() + (t - begin) * dim);
    const T* normed = rows.data();
    Sense({end - begin, dim, 1}, static_cast<int>(m), folded.phi.data(), 0, dim, &normed, dot.data(),
          static_cast<T*>(nullptr));
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t i = 0; i < m; ++i) {
        const T z = dot[(t - begin) * m + i] + folded.shift[static_cast<size_t>(i)];
        terms[(t * n + k) * m + i] = options_.tanh ? std::tanh(z) : z;
      }
    }
  }
}

template <class T>
void Hc<T>::Decide(int site, const T* p, int64_t begin, int64_t end, Coefs<T>* coefs) const {
  const Offsets& o = Of(site);
  const int n = options_.slots;
  for (int64_t t = begin; t < end; ++t) {
    T *read = coefs->read.data() + t * n, *write = coefs->write.data() + t * n;
    T* keep = coefs->keep.data() + t * n * n;
    std::copy_n(p + o.static_read, n, read);
    std::copy_n(p + o.static_write, n, write);
    std::copy_n(p + o.static_keep, n * n, keep);
    if (!options_.dynamic) continue;
    const T of_read = p[o.scale], of_write = p[o.scale + 1];
    for (int k = 0; k < n; ++k) {
      const T* term = coefs->saved.data() + (t * n + k) * TermCount();
      read[k] += of_read * term[0];
      write[k] += of_write * term[1];
      for (int to = 0; to < n; ++to) keep[to * n + k] += of_read * term[2 + to];
    }
  }
}

template <class T>
void Hc<T>::Control(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const {
  if (IsHead(site)) return collapse_.Control(p + head_, s, coefs);
  const Folded folded = options_.dynamic ? Fold(site, p) : Folded{};
  ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
    if (options_.dynamic) Terms(folded, s, begin, end, coefs->saved.data());
    Decide(site, p, begin, end, coefs);
  });
}

// Gradients of the tables and scales; of the products, slot after slot, into dcoefs->saved [n][tokens, n + 2]
// and their sums into dshift.
template <class T>
void Hc<T>::TermsVjp(int site, const T* p, int64_t tokens, const T* terms, Coefs<T>* dcoefs, double* dshift,
                     T* dp) const {
  const Offsets& o = Of(site);
  const int n = options_.slots, m = TermCount(), tables = n * (n + 2), numbers = tables + 2 + m;
  const int64_t chunks = (tokens + kChunk - 1) / kChunk;
  std::vector<double> sums(static_cast<size_t>(chunks * numbers), 0.0);  // of tables, scale, shift
  ParallelFor(tokens, kChunk, [&](int64_t begin, int64_t end) {
    double *table = sums.data() + begin / kChunk * numbers, *scale = table + tables, *shift = scale + 2;
    for (int64_t t = begin; t < end; ++t) {
      for (int k = 0; k < n; ++k) {
        for (int i = 0; i < m; ++i) {
          const int at = i == 0 ? k : i == 1 ? n + k : 2 * n + (i - 2) * n + k;
          const double g =
              Saturated(static_cast<double>(Real(i == 0   ? dcoefs->read[t * n + k]
                                                 : i == 1 ? dcoefs->write[t * n + k]
                                                          : dcoefs->keep[t * n * n + (i - 2) * n + k])));
          table[at] += g;
          if (!options_.dynamic) continue;
          const int group = i == 1 ? 1 : 0;
          const double term = static_cast<double>(Real(terms[(t * n + k) * m + i]));
          scale[group] += g * term;
          const double of_product =
              g * static_cast<double>(Real(p[o.scale + group])) * (options_.tanh ? 1 - term * term : 1);
          shift[i] += of_product;
          dcoefs->saved[(k * tokens + t) * m + i] = static_cast<T>(static_cast<RealOf<T>>(of_product));
        }
      }
    }
  });
  const auto add = [](T* to, double value) { *to += static_cast<T>(static_cast<RealOf<T>>(value)); };
  for (int64_t c = 0; c < chunks; ++c) {
    const double* of_chunk = sums.data() + c * numbers;
    for (int i = 0; i < tables; ++i) add(dp + o.static_read + i, of_chunk[i]);
    if (!options_.dynamic) continue;
    for (int i = 0; i < 2; ++i) add(dp + o.scale + i, of_chunk[tables + i]);
    for (int i = 0; i < m; ++i) dshift[i] += of_chunk[tables + 2 + i];
  }
}

// g [tokens, n + 2]: gradient of one slot's products. dphi [n + 2, dim] and the slot's gradient accumulated.
template <class T>
void Hc<T>::RowsVjp(int slot, const Folded& folded, const State<T>& s, const T* g, const State<T>& ds,
                    T* dphi) const {
  static thread_local Buffer<T> rows_buffer, drows_buffer, rstd_buffer;
  const int64_t dim = this->dim(), m = TermCount();
  rows_buffer.Resize(kBlock * dim);
  drows_buffer.Resize(kBlock * dim);
  rstd_buffer.Resize(kBlock);
  T *rows = rows_buffer.data(), *drows = drows_buffer.data(), *rstd = rstd_buffer.data();
  const T* const of_slot = s.slots[static_cast<size_t>(slot)];
  T* const dslot = ds.slots[static_cast<size_t>(slot)];
  for (int64_t first = 0; first < s.tokens; first += kBlock) {
    const int64_t count = std::min(kBlock, s.tokens - first);
    ParallelFor(count, kChunk, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        rstd[t] = norm_.Apply(of_slot + (first + t) * dim, rows + t * dim);
      std::fill(drows + begin * dim, drows + end * dim, T(0));
    });
    const T* normed = rows;
    SenseVjp({count, dim, 1}, static_cast<int>(m), folded.phi.data(), 0, dim, &normed, g + first * m,
             static_cast<const T*>(nullptr), &drows, dphi);
    ParallelFor(count, kChunk, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        norm_.Vjp(rows + t * dim, rstd[t], drows + t * dim, dslot + (first + t) * dim);
      }
    });
  }
}

template <class T>
void Hc<T>::ControlVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                       const State<T>& ds, T* dp) const {
  if constexpr (std::is_floating_point_v<T>) {
    if (IsHead(site)) return collapse_.ControlVjp(p + head_, s, coefs, dcoefs, ds, dp + head_);
    const int64_t dim = this->dim(), m = TermCount();
    std::vector<double> dshift(static_cast<size_t>(m), 0.0);
    TermsVjp(site, p, s.tokens, coefs.saved.data(), dcoefs, dshift.data(), dp);
    if (!options_.dynamic) return;
    const Folded folded = Fold(site, p);
    std::vector<T> dphi(static_cast<size_t>(m * dim), T(0));
    for (int k = 0; k < options_.slots; ++k) {
      RowsVjp(k, folded, s, dcoefs->saved.data() + k * s.tokens * m, ds, dphi.data());
    }
    const Offsets& o = Of(site);
    for (int i = 0; i < m; ++i) {
      const T of_bias = static_cast<T>(dshift[static_cast<size_t>(i)]);
      for (int64_t d = 0; d < dim; ++d) {
        const int64_t at = Place(o, i, d);
        const T g = dphi[static_cast<size_t>(i * dim + d)];
        dp[at] += g * p[o.gain + d];
        dp[o.gain + d] += g * p[at];
        if (!options_.layer) continue;
        dp[at] += of_bias * p[o.bias + d];
        dp[o.bias + d] += of_bias * p[at];
      }
    }
  }
}

template <class T>
std::vector<Intermediate> Hc<T>::Inside(int site, const T* /*p*/, const State<T>& s,
                                        const Coefs<T>& coefs) const {
  if (IsHead(site) || !options_.dynamic) return {};
  const int64_t n = options_.slots;
  Intermediate read{"dynamic.read", {n}, {}}, write{"dynamic.write", {n}, {}},
      keep{"dynamic.keep", {n, n}, {}};
  for (int64_t t = 0; t < s.tokens; ++t) {
    const auto term = [&](int64_t k, int64_t i) {
      return static_cast<double>(Real(coefs.saved[(t * n + k) * TermCount() + i]));
    };
    for (int64_t k = 0; k < n; ++k) {
      read.values.push_back(term(k, 0));
      write.values.push_back(term(k, 1));
      for (int64_t from = 0; from < n; ++from) keep.values.push_back(term(from, 2 + k));
    }
  }
  return {read, write, keep};
}

}  // namespace

const Description kHcDescription{
    "hyper-connections: n streams with learned reads, writes and an unconstrained mixing matrix",
    "hyper-connections, static and dynamic, arXiv 2409.19606 (one matrix per sublayer)",
    "N             = layer norm (norm=rms: rms norm) of one slot over its d channels, with gain and bias\n"
    "read[k]       = scale[0] tanh(<N(S_k), dynamic.read>) + static.read[k]\n"
    "write[k]      = scale[1] tanh(<N(S_k), dynamic.write>) + static.write[k]\n"
    "keep[to,from] = scale[0] tanh(<N(S_from), dynamic.keep[:,to]>) + static.keep[to,from]\n"
    "x             = sum_k read[k] S_k\n"
    "S'_j          = sum_k keep[j,k] S_k + write[j] u\n"
    "output        = sum or mean of the slots, or sum_k sigmoid(T'[k]) S_k with logits T' of all slots",
    "the pre-norm Transformer, held n times over: site s reads slot s mod n alone, every write is 1 and keep "
    "is "
    "the identity; the head's sum is n times the plain one",
    "the paper scales the initial output projections by sqrt(n); here they start as in every other model"};

template <class T>
std::unique_ptr<Mechanism<T>> MakeHc(OptionReader* reader, const Size& size) {
  HcOptions options;
  options.slots = static_cast<int>(reader->Integer("slots", 4, 1, JointLogits<T>::kMostSlots, "streams"));
  options.dynamic =
      reader->Boolean("dynamic", true, "coefficients that depend on the state; false: tables alone");
  options.tanh = reader->Boolean("tanh", true, "bounds the dynamic terms");
  options.layer =
      reader->Choice("norm", {"layer", "rms"}, "of each slot, before the dynamic terms") == "layer";
  options.collapse = reader->Choice("collapse", {"sum", "mean", "head"}, "how the head makes one of n slots");
  options.eps =
      reader->Real("eps", 1e-5, 0, "added to the variance; with collapse=head to the mean square, too");
  if (!options.dynamic) {
    for (const char* name : {"tanh", "norm"}) {
      if (reader->Given(name)) reader->Refuse(name, fmt::format("no {} with dynamic=false", name));
    }
    if (reader->Given("eps") && options.collapse != "head") {
      reader->Refuse("eps", "no eps with dynamic=false, but for collapse=head");
    }
  }
  return std::make_unique<Hc<T>>(size, options);
}

template std::unique_ptr<Mechanism<float>> MakeHc(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeHc(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeHc(OptionReader*, const Size&);

}  // namespace strata
