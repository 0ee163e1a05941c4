#include "residual/attnres.h"

#include <algorithm>
#include <cmath>
#include <complex>

#include "base/parallel.h"
#include "ops/project.h"
#include "residual/decide.h"
#include "residual/own_queries.h"

namespace strata {
namespace {

constexpr int64_t kChunk = kProjectRows;  // tokens

enum class Weights { kSoftmax, kSigmoid, kStatic };

struct AttnResOptions {
  int64_t block = 1, heads = 1, window = 0;
  int given = 1;
  Weights weights = Weights::kSoftmax;
  bool input_query = false, key_norm = true;
  double eps = 1e-6;
};

template <class T>
class AttnRes : public Mechanism<T> {
 public:
  AttnRes(const Size& size, const AttnResOptions& options) : Mechanism<T>(size), options_(options) {
    for (int site = 0; site <= size.sites; ++site) DeclareAt(site);
  }

  Rule At(int site) const override {
    const auto block = static_cast<int>(options_.block);
    Rule rule;
    rule.slots = options_.given + (site == 0 ? 0 : 1 + (site - 1) / block);
    rule.append = site < this->sites() && site % block == 0;
    rule.closed = rule.append || site == this->sites() ? rule.slots : rule.slots - 1;
    rule.read = options_.heads > 1 ? Coef::kChannel : Coef::kToken;
    if (!Static())
      rule.saved = rule.slots * (options_.heads + 1) + (options_.input_query ? this->dim() + 1 : 0);
    return rule;
  }

  void Control(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const override {
    if (!Static()) Score(site, p, s, coefs);
    const int64_t slots = Slots(s), heads = options_.heads;
    ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
      static thread_local std::vector<T> weights;
      weights.resize(static_cast<size_t>(slots));
      for (int64_t t = begin; t < end; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
          const T* z = Static() ? p + offsets_[static_cast<size_t>(site)].query
                                : coefs->saved.data() + t * slots * heads + h;
          Weigh(slots, z, Static() ? 1 : heads, weights.data());
          Spread(t, h, slots, weights.data(), coefs->read.data());
        }
      }
    });
  }

  void ControlVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                  const State<T>& ds, T* dp) const override;
  std::vector<Intermediate> Inside(int site, const T* p, const State<T>& s,
                                   const Coefs<T>& coefs) const override;

 private:
  struct Offsets {
    int64_t query = 0, gain = 0;  // query: the vector, the matrix or the static logits
  };

  bool Static() const { return options_.weights == Weights::kStatic; }
  // One query for all tokens and channels: the kernels of ops/mix.h do it.
  bool Plain() const { return options_.heads == 1 && !options_.input_query; }
  static int64_t Slots(const State<T>& s) { return static_cast<int64_t>(s.slots.size()); }
  bool InWindow(int64_t k, int64_t slots) const {
    return options_.window == 0 || k == 0 || k >= slots - options_.window;
  }
  T* Rstd(const State<T>& s, Coefs<T>* c) const {
    return c->saved.data() + s.tokens * Slots(s) * options_.heads;
  }
  T* Queries(const State<T>& s, Coefs<T>* c) const { return Rstd(s, c) + s.tokens * Slots(s); }
  T Gain(int site, const T* p, int64_t d) const {
    return options_.key_norm ? p[offsets_[static_cast<size_t>(site)].gain + d] : T(1);
  }

  void DeclareAt(int site);
  void Score(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const;
  void ScoreScaled(int64_t t, int64_t k, const T* phi, const State<T>& s, T* z, T* rstd) const;
  const T* FoldGain(int site, const T* p, int64_t rows, const T* query) const;
  void Weigh(int64_t slots, const T* z, int64_t stride, T* weights) const;
  void WeighVjp(int64_t slots, const T* weights, const double* dweights, double* dz) const;
  void Spread(int64_t t, int64_t h, int64_t slots, const T* weights, T* read) const;
  void GatherVjp(int64_t t, int64_t h, int64_t slots, const T* read, const T* dread, T* weights,
                 double* dweights) const;
  void StaticVjp(int site, const State<T>& s, const Coefs<T>& coefs, const Coefs<T>& dcoefs, T* dp) const;
  void ScoreVjp(const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs) const;
  void QueryVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                const State<T>& ds, T* dp) const;

  AttnResOptions options_;
  std::vector<Offsets> offsets_;
};

template <class T>
void AttnRes<T>::DeclareAt(int site) {
  const int64_t d = this->dim(), sources = At(site).slots;
  const std::string prefix = site < this->sites() ? fmt::format("sites.{}.", site) : "head.";
  offsets_.emplace_back();
  Offsets& o = offsets_.back();
  if (Static()) {
    o.query = this->Declare(prefix + "logits", {sources}, {}, false, "[sources]");
    return;
  }
  o.query = options_.input_query ? this->Declare(prefix + "query.weight", {d, d}, {}, false, "[d, d]")
                                 : this->Declare(prefix + "query", {d}, {}, false, "[d]");
  if (!options_.key_norm) return;
  o.gain =
      this->Declare(prefix + "norm.weight", {d}, {Init::Kind::kConstant, 1, {}}, false, "[d] the keys' gain");
}

// ---- forward

// weights[k] of one token and head from its scores z[k * stride]; 0 outside the window.
template <class T>
void AttnRes<T>::Weigh(int64_t slots, const T* z, int64_t stride, T* weights) const {
  static thread_local std::vector<T> inside;
  inside.clear();
  for (int64_t k = 0; k < slots; ++k) {
    if (InWindow(k, slots)) inside.push_back(z[k * stride]);
  }
  if (options_.weights == Weights::kSigmoid) {
    for (T& v : inside) v = Sigmoid(v);
  } else {
    Softmax(static_cast<int64_t>(inside.size()), inside.data(), inside.data());
  }
  size_t next = 0;
  for (int64_t k = 0; k < slots; ++k) weights[k] = InWindow(k, slots) ? inside[next++] : T(0);
}

// Weights of one token and head to the coefficient of the read.
template <class T>
void AttnRes<T>::Spread(int64_t t, int64_t h, int64_t slots, const T* weights, T* read) const {
  if (options_.heads == 1) {
    std::copy(weights, weights + slots, read + t * slots);
    return;
  }
  const int64_t dim = this->dim(), width = dim / options_.heads;
  for (int64_t k = 0; k < slots; ++k)
    std::fill_n(read + (t * slots + k) * dim + h * width, width, weights[k]);
}

// query * gain for rows of queries; valid until the next call on this thread.
template <class T>
const T* AttnRes<T>::FoldGain(int site, const T* p, int64_t rows, const T* query) const {
  static thread_local Buffer<T> folded;
  const int64_t dim = this->dim();
  folded.Resize(rows * dim);
  T* to = folded.data();
  ParallelFor(rows, kChunk, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * dim; i < end * dim; ++i) to[i] = query[i] * Gain(site, p, i % dim);
  });
  return to;
}

template <class T>
void AttnRes<T>::Score(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const {
  const int64_t slots = Slots(s), heads = options_.heads, dim = this->dim();
  const bool input = options_.input_query;
  if (input) {
    T* queries = Queries(s, coefs);
    QueryNewest(dim, p + offsets_[static_cast<size_t>(site)].query, options_.eps, s, queries,
                queries + s.tokens * dim);
  }
  const T* query = input ? Queries(s, coefs) : p + offsets_[static_cast<size_t>(site)].query;
  const T* phi = FoldGain(site, p, input ? s.tokens : 1, query);
  T *score = coefs->saved.data(), *rstd = Rstd(s, coefs);
  if (Plain()) {
    Sense({s.tokens, dim, static_cast<int>(slots)}, 1, phi, 0, dim, s.slots.data(), score, rstd);
  } else {
    SenseOwn(OwnQueries<T>{phi, input ? dim : 0, heads}, dim, s, score, rstd);
  }
  ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * slots; i < end * slots; ++i) {
      T* z = score + i * heads;
      bool holds = options_.key_norm ? HoldsDigits(rstd[i], dim, options_.eps) : std::isfinite(Real(rstd[i]));
      for (int64_t h = 0; h < heads; ++h) holds = holds && std::isfinite(Real(z[h]));
      if (holds) {
        rstd[i] = options_.key_norm ? strata::Rstd(rstd[i], dim, options_.eps) : T(1);
        for (int64_t h = 0; h < heads; ++h) z[h] *= rstd[i];
      } else {
        ScoreScaled(i / slots, i % slots, phi + (input ? i / slots * dim : 0), s, z, rstd + i);
      }
    }
  });
}

template <class T>
void AttnRes<T>::ScoreScaled(int64_t t, int64_t k, const T* phi, const State<T>& s, T* z, T* rstd) const {
  const int64_t width = this->dim() / options_.heads;
  const T* row = s.slots[static_cast<size_t>(k)] + t * this->dim();
  const double floor = options_.eps;
  *rstd = SenseScaled(1, this->dim(), 0, row, 0, 0, &row, floor, static_cast<T*>(nullptr));
  const auto scale = options_.key_norm ? static_cast<double>(Real(*rstd)) : 1.0;
  for (int64_t h = 0; h < options_.heads; ++h) {
    double sum = 0;
    for (int64_t d = h * width; d < (h + 1) * width; ++d) {
      sum += static_cast<double>(Real(phi[d])) * (static_cast<double>(Real(row[d])) * scale);
    }
    z[h] = T(static_cast<RealOf<T>>(Saturated(static_cast<double>(static_cast<RealOf<T>>(sum)))));
  }
  if (!options_.key_norm) *rstd = T(1);
}

// ---- backward

// dz of one token and head; in double, so that huge sources cancel as they must.
template <class T>
void AttnRes<T>::WeighVjp(int64_t slots, const T* weights, const double* dweights, double* dz) const {
  double mean = 0;
  for (int64_t k = 0; k < slots; ++k) mean += static_cast<double>(Real(weights[k])) * dweights[k];
  for (int64_t k = 0; k < slots; ++k) {
    const double w = static_cast<double>(Real(weights[k]));
    dz[k] = options_.weights == Weights::kSigmoid ? w * (1 - w) * dweights[k] : w * (dweights[k] - mean);
    if (!InWindow(k, slots)) dz[k] = 0;
  }
}

// The weights of one token and head and their gradient, from the coefficient of the read.
template <class T>
void AttnRes<T>::GatherVjp(int64_t t, int64_t h, int64_t slots, const T* read, const T* dread, T* weights,
                           double* dweights) const {
  const int64_t dim = options_.heads == 1 ? 1 : this->dim(), width = dim / options_.heads;
  for (int64_t k = 0; k < slots; ++k) {
    const int64_t at = (t * slots + k) * dim + h * width;
    weights[k] = read[at];
    double sum = 0;
    for (int64_t d = 0; d < width; ++d) sum += static_cast<double>(Real(dread[at + d]));
    dweights[k] = Saturated(sum);
  }
}

// With g = dz, r = rstd, z = score:  ddot = g r;  dsq = -sum_h g z r^2 / (2 dim).
template <class T>
void AttnRes<T>::ScoreVjp(const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs) const {
  const int64_t slots = Slots(s), heads = options_.heads;
  const T *score = coefs.saved.data(), *rstd = score + s.tokens * slots * heads;
  T *ddot = dcoefs->saved.data(), *dsq = Rstd(s, dcoefs);
  ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
    std::vector<T> weights(static_cast<size_t>(slots));
    std::vector<double> dweights(weights.size()), dz(weights.size());
    std::fill(dsq + begin * slots, dsq + end * slots, T(0));
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        GatherVjp(t, h, slots, coefs.read.data(), dcoefs->read.data(), weights.data(), dweights.data());
        WeighVjp(slots, weights.data(), dweights.data(), dz.data());
        for (int64_t k = 0; k < slots; ++k) {
          const int64_t i = t * slots + k;
          const double g = dz[static_cast<size_t>(k)], r = static_cast<double>(Real(rstd[i]));
          ddot[i * heads + h] = T(static_cast<RealOf<T>>(g * r));
          if (!options_.key_norm) continue;
          const double z = static_cast<double>(Real(score[i * heads + h]));
          dsq[i] += T(static_cast<RealOf<T>>(-0.5 * g * z * r * r / static_cast<double>(this->dim())));
        }
      }
    }
  });
}

template <class T>
void AttnRes<T>::StaticVjp(int site, const State<T>& s, const Coefs<T>& coefs, const Coefs<T>& dcoefs,
                           T* dp) const {
  const int64_t slots = Slots(s);
  std::vector<T> weights(static_cast<size_t>(slots));
  std::vector<double> dweights(weights.size()), dz(weights.size()), sum(weights.size(), 0.0);
  for (int64_t t = 0; t < s.tokens; ++t) {
    GatherVjp(t, 0, slots, coefs.read.data(), dcoefs.read.data(), weights.data(), dweights.data());
    WeighVjp(slots, weights.data(), dweights.data(), dz.data());
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += dz[k];
  }
  T* dlogits = dp + offsets_[static_cast<size_t>(site)].query;
  for (size_t k = 0; k < sum.size(); ++k) dlogits[k] += T(static_cast<RealOf<T>>(sum[k]));
}

template <class T>
void AttnRes<T>::QueryVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                          const State<T>& ds, T* dp) const {
  const Offsets& o = offsets_[static_cast<size_t>(site)];
  const int64_t slots = Slots(s), dim = this->dim(), heads = options_.heads;
  const T *ddot = dcoefs->saved.data(), *dsq = Rstd(s, dcoefs);
  static thread_local Buffer<T> dphi;
  if (options_.input_query) {
    const T *queries = coefs.saved.data() + s.tokens * slots * (heads + 1), *rstd = queries + s.tokens * dim;
    const T* phi = FoldGain(site, p, s.tokens, queries);
    dphi.Resize(s.tokens * dim);
    SenseOwnVjp(OwnQueries<T>{phi, dim, heads}, dim, s, ddot, dsq, ds, dphi.data());
    for (int64_t i = 0; options_.key_norm && i < s.tokens * dim; ++i) {
      dp[o.gain + i % dim] += dphi[i] * queries[i];
      dphi[i] *= Gain(site, p, i % dim);
    }
    return QueryNewestVjp(dim, p + o.query, rstd, s, dphi.data(), ds, dp + o.query);
  }
  const T* phi = FoldGain(site, p, 1, p + o.query);
  const int64_t chunks = Plain() ? 1 : (s.tokens + kOwnChunk - 1) / kOwnChunk;
  dphi.Resize(chunks * dim);
  dphi.Fill(T(0));
  if (Plain()) {
    SenseVjp({s.tokens, dim, static_cast<int>(slots)}, 1, phi, 0, dim, s.slots.data(), ddot, dsq,
             ds.slots.data(), dphi.data());
  } else {
    SenseOwnVjp(OwnQueries<T>{phi, 0, heads}, dim, s, ddot, dsq, ds, dphi.data());
  }
  for (int64_t i = 0; i < chunks * dim; ++i) {
    dp[o.query + i % dim] += dphi[i] * Gain(site, p, i % dim);
    if (options_.key_norm) dp[o.gain + i % dim] += dphi[i] * p[o.query + i % dim];
  }
}

template <class T>
void AttnRes<T>::ControlVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                            const State<T>& ds, T* dp) const {
  if constexpr (std::is_floating_point_v<T>) {
    if (Static()) return StaticVjp(site, s, coefs, *dcoefs, dp);
    ScoreVjp(s, coefs, dcoefs);
    QueryVjp(site, p, s, coefs, dcoefs, ds, dp);
  }
}

template <class T>
std::vector<Intermediate> AttnRes<T>::Inside(int site, const T* p, const State<T>& s,
                                             const Coefs<T>& coefs) const {
  const int64_t slots = Slots(s), heads = options_.heads;
  Intermediate scores{"scores", {slots}, {}};
  if (heads > 1) scores.shape.push_back(heads);
  for (int64_t i = 0; i < s.tokens * slots * heads; ++i) {
    const int64_t k = i / heads % slots;
    const T z = Static() ? p[offsets_[static_cast<size_t>(site)].query + k] : coefs.saved[i];
    scores.values.push_back(InWindow(k, slots) ? static_cast<double>(Real(z))
                                               : std::numeric_limits<double>::quiet_NaN());
  }
  return {scores};
}

}  // namespace

const Description kAttnResDescription{
    "a softmax over the embedding and the outputs of all earlier layers (or blocks of them)",
    "Attention Residuals, arXiv 2603.15031, section 3 (block form; block=1 is the full form) and its "
    "ablations",
    "z_k = <query * gain, S_k> / sqrt(mean(S_k^2) + eps)\n"
    "x   = sum_k softmax(z)_k S_k                    the slots themselves, not normalised\n"
    "write: opens a new slot where site mod block = 0, else adds u to the last one\n"
    "the head reads with a query of its own\n"
    "weights=sigmoid: sigmoid(z)_k; weights=static: softmax(logits); query=input: query = W N(newest slot);\n"
    "heads=H: a softmax for each of H groups of channels; window=W: slot 0 and the newest W others only",
    "all weights are equal: every read is the mean of the slots, not their sum",
    "site 0, whose read has one source, keeps its (idle) query"};

template <class T>
std::unique_ptr<Mechanism<T>> MakeAttnRes(OptionReader* reader, const Size& size) {
  AttnResOptions o;
  o.given = std::max(size.given, 1);
  o.block = reader->Integer("block", (size.sites + 7) / 8, 1, 1'000'000,
                            "sites (sublayers) per block, by default ceil(sites / 8); 1 is the full form");
  const std::string weights =
      reader->Choice("weights", {"softmax", "sigmoid", "static"}, "how scores become weights");
  o.weights = weights == "static"    ? Weights::kStatic
              : weights == "sigmoid" ? Weights::kSigmoid
                                     : Weights::kSoftmax;
  o.input_query = reader->Choice("query", {"learned", "input"},
                                 "a vector per site, or a matrix times the newest slot") == "input";
  o.heads = reader->Integer("heads", 1, 1, size.dim, "groups of channels with weights of their own");
  o.window = reader->Integer("window", 0, 0, 1'000'000,
                             "slots that are read beside slot 0, the newest ones; 0: all");
  o.key_norm = reader->Boolean("key-norm", true, "normalise the slots for their scores");
  o.eps = reader->Real("eps", 1e-6, 0, "added to the mean square");
  if (size.dim % o.heads != 0) reader->Refuse("heads", fmt::format("a divisor of dim {}", size.dim));
  for (const char* name : {"query", "heads", "key-norm"}) {
    if (o.weights == Weights::kStatic && reader->Given(name)) {
      reader->Refuse(name, fmt::format("no {} with weights=static", name));
    }
  }
  return std::make_unique<AttnRes<T>>(size, o);
}

template std::unique_ptr<Mechanism<float>> MakeAttnRes(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeAttnRes(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeAttnRes(OptionReader*, const Size&);

}  // namespace strata
