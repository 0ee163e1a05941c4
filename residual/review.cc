#include "residual/review.h"

#include <complex>
#include <limits>

#include "residual/decide.h"
#include "residual/gates.h"
#include "residual/row_norm.h"

namespace strata {
namespace {

constexpr int64_t kChunk = kProjectRows;  // tokens
constexpr int kDeep = 20;                 // sites from which the convex form is known to stall

template <class T>
class ReviewGate : public Mechanism<T> {
 public:
  ReviewGate(const Size& size, bool convex, double bias, double eps)
      : Mechanism<T>(size), convex_(convex), norm_(size.dim, false, eps) {
    const int64_t d = size.dim;
    for (int site = 0; site < size.sites; ++site) {
      const std::string prefix = fmt::format("sites.{}.gate.", site);
      offsets_.emplace_back();
      Offsets& o = offsets_.back();
      o.state = this->Declare(prefix + "state", {d, d}, {}, true, "[d, d] W_h");
      o.update = this->Declare(prefix + "update", {d, d}, {}, true, "[d, d] W_u");
      o.bias = this->Declare(prefix + "bias", {d}, {Init::Kind::kConstant, bias, {}}, false, "[d] b");
    }
  }

  Rule At(int site) const override {
    Rule rule;
    if (site == this->sites()) {
      rule.closed = 1;
      return rule;
    }
    rule.keep = convex_ ? Coef::kChannel : Coef::kOne;
    rule.write = Coef::kChannel;
    rule.sees_update = rule.reads_update = true;
    rule.saved = 2;
    return rule;
  }

  bool wide() const override { return true; }
  void Review(int site, const T* p, const State<T>& s, const T* u, Coefs<T>* coefs) const override {
    const Offsets& o = offsets_[static_cast<size_t>(site)];
    const int64_t dim = this->dim();
    ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
      static thread_local Buffer<T> unit, logits;
      const int64_t rows = end - begin;
      unit.Resize(rows * dim);
      logits.Resize(rows * dim);
      T* gate = coefs->write.data() + begin * dim;
      for (int64_t t = begin; t < end; ++t) {
        coefs->saved[2 * t] = norm_.Apply(s.slots[0] + t * dim, unit.data() + (t - begin) * dim);
      }
      Project(rows, dim, dim, p + o.state, dim, unit.data(), gate);
      for (int64_t t = begin; t < end; ++t) {
        coefs->saved[2 * t + 1] = norm_.Apply(u + t * dim, unit.data() + (t - begin) * dim);
      }
      Project(rows, dim, dim, p + o.update, dim, unit.data(), logits.data());
      for (int64_t i = 0; i < rows * dim; ++i) {
        gate[i] = Sigmoid(gate[i] + logits[i] + p[o.bias + i % dim]);
        if (convex_) coefs->keep[begin * dim + i] = T(1) - gate[i];
      }
    });
  }

  void ReviewVjp(int site, const T* p, const State<T>& s, const T* u, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                 const State<T>& ds, T* du, T* dp) const override {
    if constexpr (std::is_floating_point_v<T>) {
      const Offsets& o = offsets_[static_cast<size_t>(site)];
      GateLogitsVjp(s.tokens, this->dim(), convex_, coefs, dcoefs, dp + o.bias);
      const T* dlogits = dcoefs->write.data();
      SideVjp(s.tokens, p + o.state, s.slots[0], coefs.saved.data(), dlogits, ds.slots[0], dp + o.state);
      SideVjp(s.tokens, p + o.update, u, coefs.saved.data() + 1, dlogits, du, dp + o.update);
    }
  }

  std::string Caution() const override {
    if (!convex_ || this->sites() <= kDeep) return {};
    return fmt::format(
        "review: form=convex halves what each site keeps and is known to stall beyond {} sites "
        "(this model has {}); form=additive or a negative gate-bias does not",
        kDeep, this->sites());
  }

  std::vector<Intermediate> Inside(int site, const T* /*p*/, const State<T>& s,
                                   const Coefs<T>& coefs) const override {
    if (site == this->sites()) return {};
    return {GateInside(s.tokens, this->dim(), coefs)};
  }

 private:
  struct Offsets {
    int64_t state = 0, update = 0, bias = 0;
  };

  // Back through W N(v) for the rows v of one side; rstd lies two apart. dv and dw accumulated.
  void SideVjp(int64_t tokens, const T* w, const T* v, const T* rstd, const T* dlogits, T* dv, T* dw) const {
    static thread_local Buffer<T> units;
    const int64_t dim = this->dim();
    units.Resize(tokens * dim);
    T* unit = units.data();
    ParallelFor(tokens, kChunk, [&](int64_t begin, int64_t end) {
      static thread_local Buffer<T> dunit;
      dunit.Resize((end - begin) * dim);
      ProjectBack(end - begin, dim, dim, w, dim, dlogits + begin * dim, dunit.data());
      for (int64_t t = begin; t < end; ++t) {
        norm_.Apply(v + t * dim, unit + t * dim);
        norm_.Vjp(unit + t * dim, rstd[2 * t], dunit.data() + (t - begin) * dim, dv + t * dim);
      }
    });
    ProjectWeights(tokens, dim, dim, dlogits, unit, dw, dim);
  }

  bool convex_;
  RowNorm<T> norm_;
  std::vector<Offsets> offsets_;  // per site
};

}  // namespace

const Description kReviewDescription{
    "a gate of every channel that inspects state and update before the update is added",
    "Review Residuals, arXiv 2606.31859 (the bias and eps as in its public code)",
    "r  = sigmoid(W_h N(S) + W_u N(u) + b)            N without gain\n"
    "x  = S\n"
    "S' = S + r * u                                   form=convex: (1 - r) * S + r * u",
    "W = 0, so r = 1/2 exactly and updates count half; with gate-bias=40 it is the pre-norm Transformer", ""};

template <class T>
std::unique_ptr<Mechanism<T>> MakeReview(OptionReader* reader, const Size& size) {
  const bool convex = reader->Choice("form", {"additive", "convex"}, "what is kept of the state") == "convex";
  const double bias =
      reader->Real("gate-bias", 0, -std::numeric_limits<double>::infinity(), "initial bias of the gates");
  const double eps = reader->Real("eps", 1e-5, 0, "added to the mean squares");
  return std::make_unique<ReviewGate<T>>(size, convex, bias, eps);
}

template std::unique_ptr<Mechanism<float>> MakeReview(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeReview(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeReview(OptionReader*, const Size&);

}  // namespace strata
