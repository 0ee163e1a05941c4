#include "residual/gated.h"

#include <algorithm>
#include <cmath>
#include <complex>

#include "base/parallel.h"
#include "ops/project.h"
#include "residual/decide.h"

namespace strata {
namespace {

constexpr int64_t kChunk = kProjectRows;  // tokens
constexpr int64_t kGroup = 8 * kChunk;    // tokens whose weight gradients are summed in one product

struct GatedOptions {
  int slots = 4;
  int64_t rank = 16;
  double eps = 1e-6, init = 0.02;
  bool gated_head = true;
};

template <class T>
T Silu(T a) {
  return a * Sigmoid(a);
}

// Buffers for one chunk of tokens.
template <class T>
struct Workspace {
  Buffer<T> normalised, low, wide, back, narrow;
};

template <class T>
class Gated : public Mechanism<T> {
 public:
  Gated(const Size& size, const GatedOptions& options)
      : Mechanism<T>(size), options_(options), held_(static_cast<size_t>(size.sites) + 1) {
    for (int site = 0; site <= size.sites; ++site) {
      offsets_.emplace_back();
      if (Decides(site)) DeclareAt(site);
    }
  }

  Rule At(int site) const override {
    Rule rule;
    rule.slots = options_.slots;
    rule.normed = Decides(site);
    if (IsHead(site)) {
      rule.closed = rule.slots;
      rule.read = Decides(site) ? Coef::kChannel : Coef::kToken;
    } else {
      rule.read = Coef::kChannel;
      rule.write = Coef::kToken;
      rule.reads_update = true;
    }
    rule.saved = Decides(site) ? options_.slots + options_.rank : 0;
    return rule;
  }

  bool wide() const override { return true; }
  void Control(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const override {
    if (!Decides(site)) return coefs->read.Fill(T(1) / T(static_cast<RealOf<T>>(options_.slots)));
    ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
      static thread_local Workspace<T> work;
      work.normalised.Resize((end - begin) * Width());
      NormRows(s, begin, end, coefs);
      Normalise(site, p, s, *coefs, begin, end, work.normalised.data());
      Decide(site, p, begin, end, s.tokens, &work, coefs);
    });
  }

  void ControlVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                  const State<T>& ds, T* dp) const override;
  std::vector<Intermediate> Inside(int site, const T* p, const State<T>& s,
                                   const Coefs<T>& coefs) const override;
  std::string EqualForEver() const override {
    if (options_.slots == 1 || options_.init > 0) return {};
    return "gated: init: expected above 0, got 0: with all weights 0 the branches stay equal for ever";
  }
  bool HoldGate(int site, const std::vector<double>& gate) override {
    held_[static_cast<size_t>(site)] = gate;
    return true;
  }

 private:
  struct Offsets {
    int64_t gain = 0, down = 0, up = 0, write = 0;
  };

  bool IsHead(int site) const { return site == this->sites(); }
  bool Decides(int site) const { return !IsHead(site) || options_.gated_head; }
  int64_t Width() const { return options_.slots * this->dim(); }
  T Inverse() const { return T(1) / T(static_cast<RealOf<T>>(options_.slots)); }
  T Gain(const Offsets& o, const T* p, int64_t i) const { return T(1) + p[o.gain + i]; }
  // Where the low-rank activations begin in coefs.saved.
  int64_t LowRankAt(int64_t tokens) const { return tokens * options_.slots; }

  void DeclareAt(int site) {
    const int64_t n = options_.slots, d = this->dim(), r = options_.rank;
    const std::string prefix = IsHead(site) ? "head." : fmt::format("sites.{}.", site);
    const Init normal{Init::Kind::kNormal, options_.init, {}};
    Offsets& o = offsets_.back();
    o.gain = this->Declare(prefix + "norm.weight", {n, d}, {}, false, "[n, d] gain - 1 of the slots' norms");
    o.down = this->Declare(prefix + "down.weight", {r, n * d}, normal, true, "[r, n d] W_d, slot after slot");
    o.up = this->Declare(prefix + "up.weight", {n * d, r}, normal, true, "[n d, r] W_u");
    if (IsHead(site)) return;
    o.write = this->Declare(prefix + "write.weight", {n, n * d}, normal, false, "[n, n d] W_w");
  }

  // 1 / rms of every slot, finite where the slot is.
  void NormRows(const State<T>& s, int64_t begin, int64_t end, Coefs<T>* coefs) const;
  // normalised [rows, slots * dim] = gain * S / rms(S)
  void Normalise(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, int64_t begin, int64_t end,
                 T* normalised) const;
  void Decide(int site, const T* p, int64_t begin, int64_t end, int64_t tokens, Workspace<T>* work,
              Coefs<T>* coefs) const;
  // The gates G [rows, slots * dim] from the low-rank activations, or those held.
  void Gates(int site, const T* p, const Coefs<T>& coefs, int64_t begin, int64_t end, int64_t tokens,
             Buffer<T>* low, T* gates) const;
  void ReadVjp(int site, const T* p, const Coefs<T>& coefs, int64_t begin, int64_t rows, const T* gates,
               T* dread, T* along, double* dgain) const;
  void LowRankVjp(int site, const T* p, int64_t rows, const T* a, const T* dgates, T* da) const;
  void NormVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, int64_t begin, int64_t rows,
               const T* dnormalised, const T* along_read, const State<T>& ds, double* dgain) const;
  void ChunkVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, int64_t begin, int64_t end,
                T* normalised, T* low, Coefs<T>* dcoefs, const State<T>& ds, double* dgain) const;

  GatedOptions options_;
  std::vector<Offsets> offsets_;
  std::vector<std::vector<double>> held_;  // per site; empty: decided
};

template <class T>
void Gated<T>::NormRows(const State<T>& s, int64_t begin, int64_t end, Coefs<T>* coefs) const {
  const int n = options_.slots;
  const int64_t dim = this->dim();
  static thread_local std::vector<T> sq;
  static thread_local std::vector<const T*> rows;
  sq.resize(static_cast<size_t>((end - begin) * n));
  rows.resize(static_cast<size_t>(n));
  for (int k = 0; k < n; ++k) rows[static_cast<size_t>(k)] = s.slots[static_cast<size_t>(k)] + begin * dim;
  Sense({end - begin, dim, n}, 0, static_cast<const T*>(nullptr), 0, 0, rows.data(), static_cast<T*>(nullptr),
        sq.data());
  for (int64_t i = begin * n; i < end * n; ++i) {
    const T sum = sq[static_cast<size_t>(i - begin * n)];
    T& rstd = coefs->saved[i];
    if (HoldsDigits(sum, dim, options_.eps)) {
      rstd = Rstd(sum, dim, options_.eps);
    } else {
      const T* row = s.slots[static_cast<size_t>(i % n)] + i / n * dim;
      rstd = SenseScaled(1, dim, 0, static_cast<const T*>(nullptr), 0, 0, &row, options_.eps,
                         static_cast<T*>(nullptr));
    }
  }
}

template <class T>
void Gated<T>::Normalise(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, int64_t begin,
                         int64_t end, T* normalised) const {
  const int n = options_.slots;
  const int64_t dim = this->dim();
  const T* gain = p + offsets_[static_cast<size_t>(site)].gain;
  for (int64_t t = begin; t < end; ++t) {
    for (int k = 0; k < n; ++k) {
      const T* row = s.slots[static_cast<size_t>(k)] + t * dim;
      const T rstd = coefs.saved[t * n + k];
      T* out = normalised + ((t - begin) * n + k) * dim;
      for (int64_t d = 0; d < dim; ++d) out[d] = (T(1) + gain[k * dim + d]) * (row[d] * rstd);
    }
  }
}

template <class T>
void Gated<T>::Gates(int site, const T* p, const Coefs<T>& coefs, int64_t begin, int64_t end, int64_t tokens,
                     Buffer<T>* low, T* gates) const {
  const int64_t width = Width(), r = options_.rank;
  const std::vector<double>& held = held_[static_cast<size_t>(site)];
  if (!held.empty()) {
    const bool shared = static_cast<int64_t>(held.size()) == width;
    for (int64_t i = begin * width; i < end * width; ++i) {
      const auto at = static_cast<size_t>(shared ? i % width : i);
      gates[i - begin * width] = T(static_cast<RealOf<T>>(held[at]));
    }
    return;
  }
  const T* a = coefs.saved.data() + LowRankAt(tokens);
  low->Resize((end - begin) * r);
  for (int64_t i = begin * r; i < end * r; ++i) (*low)[i - begin * r] = Silu(a[i]);
  Project(end - begin, r, width, p + offsets_[static_cast<size_t>(site)].up, r, low->data(), gates);
  for (int64_t i = 0; i < (end - begin) * width; ++i) gates[i] = Sigmoid(gates[i]);
}

template <class T>
void Gated<T>::Decide(int site, const T* p, int64_t begin, int64_t end, int64_t tokens, Workspace<T>* work,
                      Coefs<T>* coefs) const {
  const Offsets& o = offsets_[static_cast<size_t>(site)];
  const int64_t n = options_.slots, dim = this->dim(), width = Width(), r = options_.rank, rows = end - begin;
  T* a = coefs->saved.data() + LowRankAt(tokens) + begin * r;
  Project(rows, width, r, p + o.down, width, work->normalised.data(), a);
  for (int64_t i = 0; i < rows * r; ++i) a[i] *= Inverse();
  if (!IsHead(site)) {
    T* write = coefs->write.data() + begin * n;
    Project(rows, width, n, p + o.write, width, work->normalised.data(), write);
    for (int64_t i = 0; i < rows * n; ++i) write[i] = T(2) * Sigmoid(write[i] * Inverse());
  }
  T* read = coefs->read.data() + begin * width;
  Gates(site, p, *coefs, begin, end, tokens, &work->low, read);
  for (int64_t i = 0; i < rows * n; ++i) {
    const T scale = coefs->saved[begin * n + i] * Inverse();
    const int64_t slot = i % n * dim;
    for (int64_t d = 0; d < dim; ++d) read[i * dim + d] *= Gain(o, p, slot + d) * scale;
  }
}

// From dL/d(read) to the gradient of the gates' logits, in its place. dgain [slots * dim] and along [rows,
// slots] take what of it goes through the norm; along is dL/d(1 / rms) / rms.
template <class T>
void Gated<T>::ReadVjp(int site, const T* p, const Coefs<T>& coefs, int64_t begin, int64_t rows,
                       const T* gates, T* dread, T* along, double* dgain) const {
  const Offsets& o = offsets_[static_cast<size_t>(site)];
  const int64_t n = options_.slots, dim = this->dim();
  const bool held = !held_[static_cast<size_t>(site)].empty();
  for (int64_t i = 0; i < rows * n; ++i) {
    const int64_t slot = i % n * dim;
    const T scale = coefs.saved[begin * n + i] * Inverse();
    along[i] = T(0);
    for (int64_t d = 0; d < dim; ++d) {
      const T g = dread[i * dim + d] * scale, gate = gates[i * dim + d], gain = Gain(o, p, slot + d);
      dgain[slot + d] += static_cast<double>(g * gate);
      along[i] += g * gate * gain;
      dread[i * dim + d] = held ? T(0) : g * gain * gate * (T(1) - gate);
    }
  }
}

// da / n from the gradient of the gates' logits.
template <class T>
void Gated<T>::LowRankVjp(int site, const T* p, int64_t rows, const T* a, const T* dgates, T* da) const {
  const int64_t r = options_.rank;
  ProjectBack(rows, r, Width(), p + offsets_[static_cast<size_t>(site)].up, r, dgates, da);
  for (int64_t i = 0; i < rows * r; ++i) {
    const T sigmoid = Sigmoid(a[i]);
    da[i] *= sigmoid * (T(1) + a[i] * (T(1) - sigmoid)) * Inverse();
  }
}

// Through normalised = gain * S / rms.
template <class T>
void Gated<T>::NormVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, int64_t begin,
                       int64_t rows, const T* dnormalised, const T* along_read, const State<T>& ds,
                       double* dgain) const {
  const Offsets& o = offsets_[static_cast<size_t>(site)];
  const int64_t n = options_.slots, dim = this->dim();
  for (int64_t i = 0; i < rows * n; ++i) {
    const auto slot = static_cast<size_t>(i % n);
    const int64_t at = (begin + i / n) * dim, first = i % n * dim;
    const T *row = s.slots[slot] + at, *dn = dnormalised + i * dim;
    T* drow = ds.slots[slot] + at;
    const T rstd = coefs.saved[begin * n + i];
    T along = along_read[i];
    for (int64_t d = 0; d < dim; ++d) {
      const T unit = row[d] * rstd;
      dgain[first + d] += static_cast<double>(dn[d] * unit);
      along += dn[d] * Gain(o, p, first + d) * unit;
    }
    const T pull = along * rstd / T(static_cast<RealOf<T>>(dim));
    for (int64_t d = 0; d < dim; ++d) {
      drow[d] += dn[d] * Gain(o, p, first + d) * rstd - pull * (row[d] * rstd);
    }
  }
}

// One chunk. normalised [rows, slots * dim] and low = silu(a) [rows, rank] assigned for the weights'
// gradients; so are, in place in dcoefs, the gradients of the gates' logits (read), of a / n (saved) and of
// the write logits / n (write).
template <class T>
void Gated<T>::ChunkVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, int64_t begin,
                        int64_t end, T* normalised, T* low, Coefs<T>* dcoefs, const State<T>& ds,
                        double* dgain) const {
  static thread_local Workspace<T> work;
  const Offsets& o = offsets_[static_cast<size_t>(site)];
  const int64_t n = options_.slots, width = Width(), r = options_.rank, rows = end - begin;
  work.wide.Resize(rows * width);
  work.back.Resize(rows * width);
  work.narrow.Resize(rows * n);
  T *dread = dcoefs->read.data() + begin * width, *da = dcoefs->saved.data() + begin * r;
  const T* a = coefs.saved.data() + LowRankAt(s.tokens) + begin * r;
  Normalise(site, p, s, coefs, begin, end, normalised);
  Gates(site, p, coefs, begin, end, s.tokens, &work.low, work.wide.data());
  ReadVjp(site, p, coefs, begin, rows, work.wide.data(), dread, work.narrow.data(), dgain);
  for (int64_t i = 0; i < rows * r; ++i) low[i] = Silu(a[i]);
  LowRankVjp(site, p, rows, a, dread, da);
  ProjectBack(rows, width, r, p + o.down, width, da, work.back.data());
  if (!IsHead(site)) {
    T* dwrite = dcoefs->write.data() + begin * n;
    for (int64_t i = 0; i < rows * n; ++i) {
      const T write = coefs.write[begin * n + i];
      dwrite[i] *= write * (T(1) - write / T(2)) * Inverse();
    }
    ProjectBack(rows, width, n, p + o.write, width, dwrite, work.wide.data());
    for (int64_t i = 0; i < rows * width; ++i) work.back[i] += work.wide[i];
  }
  NormVjp(site, p, s, coefs, begin, rows, work.back.data(), work.narrow.data(), ds, dgain);
}

template <class T>
void Gated<T>::ControlVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                          const State<T>& ds, T* dp) const {
  if constexpr (std::is_floating_point_v<T>) {
    if (!Decides(site)) return;
    const Offsets& o = offsets_[static_cast<size_t>(site)];
    const int64_t n = options_.slots, width = Width(), r = options_.rank;
    static thread_local Buffer<T> normalised_of_thread, low_of_thread;
    static thread_local std::vector<double> sums;
    normalised_of_thread.Resize(kGroup * width);
    low_of_thread.Resize(kGroup * r);
    T *normalised = normalised_of_thread.data(), *low = low_of_thread.data();
    for (int64_t first = 0; first < s.tokens; first += kGroup) {
      const int64_t rows = std::min(kGroup, s.tokens - first);
      const auto wide = static_cast<size_t>(width);
      sums.assign(static_cast<size_t>((rows + kChunk - 1) / kChunk) * wide, 0.0);
      double* dgain = sums.data();
      ParallelFor(rows, kChunk, [&](int64_t begin, int64_t end) {
        ChunkVjp(site, p, s, coefs, first + begin, first + end, normalised + begin * width, low + begin * r,
                 dcoefs, ds, dgain + begin / kChunk * width);
      });
      for (size_t i = 0; i < sums.size(); ++i)
        dp[o.gain + static_cast<int64_t>(i % wide)] += static_cast<T>(sums[i]);
      ProjectWeights(rows, r, width, dcoefs->read.data() + first * width, low, dp + o.up, r);
      ProjectWeights(rows, width, r, dcoefs->saved.data() + first * r, normalised, dp + o.down, width);
      if (IsHead(site)) continue;
      ProjectWeights(rows, width, n, dcoefs->write.data() + first * n, normalised, dp + o.write, width);
    }
  }
}

template <class T>
std::vector<Intermediate> Gated<T>::Inside(int site, const T* p, const State<T>& s,
                                           const Coefs<T>& coefs) const {
  if (!Decides(site)) return {};
  const int64_t n = options_.slots, dim = this->dim(), width = Width(), r = options_.rank;
  Intermediate normalised{"normalised", {n, dim}, {}}, low{"low_rank", {r}, {}}, gate{"gate", {n, dim}, {}};
  Buffer<T> row(width), scratch;
  const auto take = [](const T* from, int64_t size, Intermediate* to) {
    for (int64_t i = 0; i < size; ++i) to->values.push_back(static_cast<double>(Real(from[i])));
  };
  for (int64_t t = 0; t < s.tokens; ++t) {
    Normalise(site, p, s, coefs, t, t + 1, row.data());
    take(row.data(), width, &normalised);
    take(coefs.saved.data() + LowRankAt(s.tokens) + t * r, r, &low);
    Gates(site, p, coefs, t, t + 1, s.tokens, &scratch, row.data());
    take(row.data(), width, &gate);
  }
  return {normalised, low, gate};
}

}  // namespace

const Description kGatedDescription{
    "n branches behind a gate of every channel; written with one number a branch, never mixed",
    "Gated Residual, arXiv 2608.30320, eq. 30-34",
    "Rh_i = (1 + w_i) * S_i / sqrt(mean(S_i^2) + eps)\n"
    "a    = W_d vec(Rh) / n\n"
    "G    = sigmoid(W_u silu(a))\n"
    "x    = 1/n sum_i G_i * Rh_i                 the sublayer has no norm of its own\n"
    "s    = 2 sigmoid(W_w vec(Rh) / n)\n"
    "S_i' = S_i + s_i u\n"
    "head: one more read in place of the final norm (head=mean: the mean of the slots, then the final norm)",
    "gates are about 1/2, so inputs are about half those of pre-norm; with w = 1, W_u = 0, W_w = 0 it is the "
    "pre-norm\n"
    "Transformer exactly",
    ""};

template <class T>
std::unique_ptr<Mechanism<T>> MakeGated(OptionReader* reader, const Size& size) {
  GatedOptions options;
  options.slots = static_cast<int>(reader->Integer("slots", 4, 1, 32, "branches"));
  const int64_t rank = std::max<int64_t>(16, (size.dim / 8 + (size.dim % 8 > 0) + 7) / 8 * 8);
  options.rank =
      reader->Integer("rank", rank, 1, 1 << 20, "of the gates' projection; max(16, d/8 rounded up to 8)");
  options.eps = reader->Real("eps", 1e-6, 0, "added to the mean square");
  options.gated_head = reader->Choice("head", {"gated", "mean"}, "how the head reads") == "gated";
  options.init = reader->Real(
      "init", 0.02, 0,
      "deviation of the weights at the start; 0 would keep the branches equal for ever and is refused");
  return std::make_unique<Gated<T>>(size, options);
}

template std::unique_ptr<Mechanism<float>> MakeGated(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeGated(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeGated(OptionReader*, const Size&);

}  // namespace strata
