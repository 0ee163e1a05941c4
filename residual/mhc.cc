#include "residual/mhc.h"

#include <array>
#include <cmath>
#include <complex>
#include <vector>

#include "base/parallel.h"
#include "residual/decide.h"
#include "residual/sinkhorn.h"

namespace strata {
namespace {

constexpr int64_t kChunk = 64;  // tokens
constexpr int kMostSlots = 32;

struct MhcOptions {
  int slots = 4, iterations = 20;
  double eps = 1e-6, norm_eps = 1e-6;  // eps 0: the paper's form
  std::string collapse = "mean";
};

template <class T>
class Mhc : public Mechanism<T> {
 public:
  Mhc(const Size& size, const MhcOptions& options);
  Rule At(int site) const override;
  bool doubly_stochastic() const override { return true; }
  void Control(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const override;
  void ControlVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                  const State<T>& ds, T* dp) const override;

 private:
  // The paper's form has no eps that would keep a row of tiny numbers from vanishing in float.
  using Wide = std::conditional_t<std::is_same_v<T, float>, double, T>;
  using Row = std::array<const T*, kMostSlots>;
  struct Offsets {
    int64_t projection = 0, scale = 0, bias = 0;
  };

  bool IsHead(int site) const { return site == this->sites(); }
  bool Decides(int site) const { return !IsHead(site) || options_.collapse == "head"; }
  int Outputs(int site) const {
    return IsHead(site) ? options_.slots : options_.slots * (options_.slots + 2);
  }
  // Which of the three scales output m has.
  int Group(int m) const { return m < options_.slots ? 0 : m < 2 * options_.slots ? 1 : 2; }
  void DeclareAt(int site);
  void Project(int site, const T* p, const State<T>& s, int64_t begin, int64_t end, Coefs<T>* coefs) const;
  T Logit(int site, const T* p, const T* projected, int m) const {
    const Offsets& o = offsets_[static_cast<size_t>(site)];
    return p[o.scale + Group(m)] * projected[m] + p[o.bias + m];
  }
  template <class U>
  void LoadKeep(int site, const T* p, const Coefs<T>& coefs, int64_t begin, int64_t end, U* logits) const;
  template <class U>
  void Keep(int site, const T* p, int64_t begin, int64_t end, Coefs<T>* coefs) const;
  template <class U>
  void KeepVjp(int site, const T* p, const Coefs<T>& coefs, int64_t begin, int64_t end, const T* dkeep,
               T* dlogits) const;

  MhcOptions options_;
  std::vector<Offsets> offsets_;
};

template <class T>
Mhc<T>::Mhc(const Size& size, const MhcOptions& options) : Mechanism<T>(size), options_(options) {
  for (int site = 0; site <= size.sites; ++site) {
    offsets_.emplace_back();
    if (Decides(site)) DeclareAt(site);
  }
}

template <class T>
void Mhc<T>::DeclareAt(int site) {
  const int n = options_.slots, outputs = Outputs(site);
  Init bias{Init::Kind::kValues, 0, std::vector<double>(static_cast<size_t>(outputs), 0.0)};
  for (int k = 0; k < n; ++k) {
    const auto at = static_cast<size_t>(k);
    if (IsHead(site)) {
      bias.values[at] = n > 1 ? -std::log(n - 1) : 3;
    } else {
      bias.values[at] = k == site % n ? 3 : -3;
      for (int j = 0; j < n; ++j) bias.values[static_cast<size_t>(2 * n + j * n + k)] = j == k ? 3 : -3;
    }
  }
  const std::string prefix = IsHead(site) ? "head." : fmt::format("sites.{}.", site);
  Offsets& o = offsets_.back();
  o.projection = this->Declare(prefix + "projection.weight", {outputs, n * this->dim()}, {}, true, "");
  o.scale =
      this->Declare(prefix + "scale", {IsHead(site) ? 1 : 3}, {Init::Kind::kConstant, 0.01, {}}, false, "");
  o.bias = this->Declare(prefix + "bias", {outputs}, std::move(bias), false, "");
}

template <class T>
Rule Mhc<T>::At(int site) const {
  Rule rule;
  rule.slots = options_.slots;
  rule.saved = Decides(site) ? Outputs(site) + 1 : 0;
  if (IsHead(site)) {
    rule.closed = rule.slots;
    rule.read = options_.collapse == "sum" ? Coef::kOne : Coef::kToken;
  } else {
    rule.read = rule.write = Coef::kToken;
    rule.keep = Coef::kMatrix;
    rule.reads_update = true;
  }
  return rule;
}

// projection v / rms v and 1 / rms v of tokens [begin, end).
template <class T>
void Mhc<T>::Project(int site, const T* p, const State<T>& s, int64_t begin, int64_t end,
                     Coefs<T>* coefs) const {
  static thread_local std::vector<T> dot, sq;
  const int n = options_.slots, outputs = Outputs(site);
  const int64_t dim = this->dim(), width = n * dim;
  const T* phi = p + offsets_[static_cast<size_t>(site)].projection;
  dot.resize(static_cast<size_t>(kChunk * n * outputs));
  sq.resize(static_cast<size_t>(kChunk * n));
  Row rows;
  for (int k = 0; k < n; ++k) rows[static_cast<size_t>(k)] = s.slots[static_cast<size_t>(k)] + begin * dim;
  Sense({end - begin, dim, n}, outputs, phi, dim, width, rows.data(), dot.data(), sq.data());
  for (int64_t t = begin; t < end; ++t) {
    const T *of_dot = dot.data() + (t - begin) * n * outputs, *of_sq = sq.data() + (t - begin) * n;
    T* projected = coefs->saved.data() + t * outputs;
    T& rstd = coefs->saved[s.tokens * outputs + t];
    T sum = T(0), checked = T(0);
    for (int k = 0; k < n; ++k) sum += of_sq[k];
    for (int m = 0; m < outputs; ++m) projected[m] = of_dot[m];
    for (int k = 1; k < n; ++k) {
      for (int m = 0; m < outputs; ++m) projected[m] += of_dot[k * outputs + m];
    }
    for (int m = 0; m < outputs; ++m) checked += projected[m];
    if (std::isfinite(Real(sum)) && std::isfinite(Real(checked))) {
      rstd = Rstd(sum, width, options_.norm_eps);
      for (int m = 0; m < outputs; ++m) projected[m] *= rstd;
    } else {
      for (int k = 0; k < n; ++k) rows[static_cast<size_t>(k)] = s.slots[static_cast<size_t>(k)] + t * dim;
      rstd = SenseScaled(n, dim, outputs, phi, dim, width, rows.data(), options_.norm_eps, projected);
    }
  }
}

// The keep logits of at most kLanes tokens, [n * n][kLanes]; lanes without a token are 0.
template <class T>
template <class U>
void Mhc<T>::LoadKeep(int site, const T* p, const Coefs<T>& coefs, int64_t begin, int64_t end,
                      U* logits) const {
  const int n = options_.slots, outputs = Outputs(site);
  constexpr int kLanes = Sinkhorn<U>::kLanes;
  std::fill_n(logits, n * n * kLanes, U(0));
  for (int64_t t = begin; t < end; ++t) {
    const T* projected = coefs.saved.data() + t * outputs;
    for (int i = 0; i < n * n; ++i) {
      logits[i * kLanes + t - begin] = static_cast<U>(Logit(site, p, projected, 2 * n + i));
    }
  }
}

template <class T>
template <class U>
void Mhc<T>::Keep(int site, const T* p, int64_t begin, int64_t end, Coefs<T>* coefs) const {
  static thread_local std::vector<U> logits, history;
  const int n = options_.slots;
  constexpr int kLanes = Sinkhorn<U>::kLanes;
  const Sinkhorn<U> sinkhorn(n, options_.iterations, options_.eps);
  logits.resize(static_cast<size_t>(sinkhorn.size()));
  history.resize(static_cast<size_t>(sinkhorn.history_size()));
  for (int64_t at = begin; at < end; at += kLanes) {
    const int64_t stop = std::min(end, at + kLanes);
    LoadKeep(site, p, *coefs, at, stop, logits.data());
    sinkhorn.Forward(logits.data(), history.data());
    const U* result = sinkhorn.Result(history.data());
    for (int64_t t = at; t < stop; ++t) {
      for (int i = 0; i < n * n; ++i)
        coefs->keep[t * n * n + i] = static_cast<T>(result[i * kLanes + t - at]);
    }
  }
}

template <class T>
void Mhc<T>::Control(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const {
  const int n = options_.slots, outputs = Outputs(site);
  if (!Decides(site)) {
    coefs->read.Fill(T(1) / T(static_cast<RealOf<T>>(n)));  // of size 0 where the slots are summed
    return;
  }
  const T eps = T(static_cast<RealOf<T>>(options_.eps));
  ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
    Project(site, p, s, begin, end, coefs);
    for (int64_t t = begin; t < end; ++t) {
      const T* projected = coefs->saved.data() + t * outputs;
      for (int k = 0; k < n; ++k) {
        coefs->read[t * n + k] = Sigmoid(Logit(site, p, projected, k)) + eps;
        if (!IsHead(site)) coefs->write[t * n + k] = T(2) * Sigmoid(Logit(site, p, projected, n + k));
      }
    }
    if (IsHead(site)) return;
    options_.eps > 0 ? Keep<T>(site, p, begin, end, coefs) : Keep<Wide>(site, p, begin, end, coefs);
  });
}

// dlogits [tokens, outputs]: the part of keep assigned for tokens [begin, end).
template <class T>
template <class U>
void Mhc<T>::KeepVjp(int site, const T* p, const Coefs<T>& coefs, int64_t begin, int64_t end, const T* dkeep,
                     T* dlogits) const {
  static thread_local std::vector<U> logits, history;
  const int n = options_.slots, outputs = Outputs(site);
  constexpr int kLanes = Sinkhorn<U>::kLanes;
  const Sinkhorn<U> sinkhorn(n, options_.iterations, options_.eps);
  logits.resize(static_cast<size_t>(sinkhorn.size()));
  history.resize(static_cast<size_t>(sinkhorn.history_size()));
  for (int64_t at = begin; at < end; at += kLanes) {
    const int64_t stop = std::min(end, at + kLanes);
    LoadKeep(site, p, coefs, at, stop, logits.data());
    sinkhorn.Forward(logits.data(), history.data());
    std::fill(logits.begin(), logits.end(), U(0));
    for (int64_t t = at; t < stop; ++t) {
      for (int i = 0; i < n * n; ++i) {
        logits[static_cast<size_t>(i * kLanes + t - at)] = static_cast<U>(dkeep[t * n * n + i]);
      }
    }
    sinkhorn.Vjp(history.data(), logits.data());
    for (int64_t t = at; t < stop; ++t) {
      for (int i = 0; i < n * n; ++i) {
        dlogits[t * outputs + 2 * n + i] = static_cast<T>(logits[static_cast<size_t>(i * kLanes + t - at)]);
      }
    }
  }
}

// With g = dlogits, y = projection v / rms v:  dbias = g;  dscale = g y;  ddot = g scale / rms;
// dsq = -(sum g scale y) / (2 n dim rms^2).  The scratch in dcoefs holds g and then ddot, and dsq.
template <class T>
void Mhc<T>::ControlVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                        const State<T>& ds, T* dp) const {
  if constexpr (std::is_floating_point_v<T>) {
    if (!Decides(site)) return;
    const int n = options_.slots, outputs = Outputs(site);
    const int64_t dim = this->dim(), width = n * dim, chunks = (s.tokens + kChunk - 1) / kChunk;
    const Offsets& o = offsets_[static_cast<size_t>(site)];
    T *g = dcoefs->saved.data(), *dsq = g + s.tokens * outputs;
    static thread_local std::vector<double> sums;  // [chunks, outputs + 3]: of bias and scale
    sums.assign(static_cast<size_t>(chunks * (outputs + 3)), 0.0);
    double* all_sums = sums.data();
    ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
      if (!IsHead(site)) {
        const T* dkeep = dcoefs->keep.data();
        options_.eps > 0 ? KeepVjp<T>(site, p, coefs, begin, end, dkeep, g)
                         : KeepVjp<Wide>(site, p, coefs, begin, end, dkeep, g);
      }
      double *dbias = all_sums + begin / kChunk * (outputs + 3), *dscale = dbias + outputs;
      for (int64_t t = begin; t < end; ++t) {
        const T* projected = coefs.saved.data() + t * outputs;
        T* of_token = g + t * outputs;
        for (int k = 0; k < n; ++k) {
          const T read = Sigmoid(Logit(site, p, projected, k));
          of_token[k] = dcoefs->read[t * n + k] * read * (1 - read);
          if (IsHead(site)) continue;
          const T write = Sigmoid(Logit(site, p, projected, n + k));
          of_token[n + k] = dcoefs->write[t * n + k] * 2 * write * (1 - write);
        }
        const T rstd = coefs.saved[s.tokens * outputs + t];
        T along = 0;
        for (int m = 0; m < outputs; ++m) {
          dbias[m] += double{of_token[m]};
          dscale[Group(m)] += double{of_token[m]} * double{projected[m]};
          const T scaled = of_token[m] * p[o.scale + Group(m)];
          along += scaled * projected[m];
          of_token[m] = scaled * rstd;
        }
        dsq[t] = T(-0.5) * along * rstd * rstd / static_cast<T>(width);
      }
    });
    for (int64_t c = 0; c < chunks; ++c) {
      const double* of_chunk = all_sums + c * (outputs + 3);
      for (int m = 0; m < outputs; ++m) dp[o.bias + m] += static_cast<T>(of_chunk[m]);
      for (int i = 0; i <= Group(outputs - 1); ++i) dp[o.scale + i] += static_cast<T>(of_chunk[outputs + i]);
    }
    // ddot and dsq are the same for all slots.
    for (int k = 0; k < n; ++k) {
      const auto at = static_cast<size_t>(k);
      SenseVjp({s.tokens, dim, 1}, outputs, p + o.projection + k * dim, dim, width, &s.slots[at], g, dsq,
               &ds.slots[at], dp + o.projection + k * dim);
    }
  }
}

}  // namespace

const Description kMhcDescription{"", "", "", "", ""};

template <class T>
std::unique_ptr<Mechanism<T>> MakeMhc(OptionReader* reader, const Size& size) {
  MhcOptions options;
  options.slots = static_cast<int>(reader->Integer("slots", 4, 1, kMostSlots, "streams"));
  options.iterations = static_cast<int>(reader->Integer("iterations", 20, 1, 1000, "of Sinkhorn"));
  const bool paper = reader->Choice("form", {"v4", "paper"}, "") == "paper";
  options.eps = reader->Real("eps", 1e-6, 0, "");
  if (paper && reader->Given("eps")) reader->Refuse("eps", "no eps with form=paper");
  if (paper) options.eps = 0;
  options.norm_eps = reader->Real("norm-eps", 1e-6, 0, "");
  options.collapse = reader->Choice("collapse", {"mean", "sum", "head"}, "");
  return std::make_unique<Mhc<T>>(size, options);
}

template std::unique_ptr<Mechanism<float>> MakeMhc(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeMhc(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeMhc(OptionReader*, const Size&);

}  // namespace strata
