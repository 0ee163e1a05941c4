#include "residual/attnres.h"

#include <cmath>
#include <complex>

#include "base/parallel.h"
#include "residual/decide.h"

namespace strata {
namespace {

constexpr int64_t kChunk = 64;  // tokens

template <class T>
class AttnRes : public Mechanism<T> {
 public:
  AttnRes(const Size& size, int block, double eps) : Mechanism<T>(size), block_(block), eps_(eps) {
    const int64_t dim = size.dim;
    for (int site = 0; site <= size.sites; ++site) {
      const std::string prefix = site < size.sites ? fmt::format("sites.{}.", site) : "head.";
      query_.push_back(this->Declare(prefix + "query", {dim}, {Init::Kind::kConstant, 0, {}}, false, "[d]"));
      gain_.push_back(
          this->Declare(prefix + "norm.weight", {dim}, {Init::Kind::kConstant, 1, {}}, false, "[d]"));
    }
  }

  Rule At(int site) const override {
    Rule rule;
    rule.slots = site == 0 ? 1 : 2 + (site - 1) / block_;
    rule.append = site < this->sites() && site % block_ == 0;
    rule.closed = rule.append || site == this->sites() ? rule.slots : rule.slots - 1;
    rule.read = Coef::kToken;
    rule.saved = 2 * rule.slots;
    return rule;
  }

  void Control(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const override {
    const auto slots = static_cast<int64_t>(s.slots.size());
    const T* phi = Folded(site, p);
    T* score = coefs->saved.data();
    T* rstd = score + s.tokens * slots;
    Sense(Dims(s), 1, phi, 0, this->dim(), s.slots.data(), score, rstd);
    ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        for (int64_t i = t * slots; i < (t + 1) * slots; ++i) {
          if (std::isfinite(Real(rstd[i])) && std::isfinite(Real(score[i]))) {
            rstd[i] = Rstd(rstd[i], this->dim(), eps_);
            score[i] *= rstd[i];
          } else {
            const T* row = s.slots[static_cast<size_t>(i - t * slots)] + t * this->dim();
            rstd[i] = SenseScaled(1, this->dim(), 1, phi, 0, 0, &row, eps_, score + i);
          }
        }
        Softmax(slots, score + t * slots, coefs->read.data() + t * slots);
      }
    });
  }

  // With a = dread, r = rstd, z = score:  g = read * (a - sum read * a);  ddot = g * r;  dsq = -g z r^2 / (2
  // dim).
  void ControlVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                  const State<T>& ds, T* dp) const override {
    if constexpr (std::is_floating_point_v<T>) {
      const auto slots = static_cast<int64_t>(s.slots.size());
      const T *score = coefs.saved.data(), *rstd = score + s.tokens * slots;
      T *ddot = dcoefs->saved.data(), *dsq = ddot + s.tokens * slots;
      ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const T *read = coefs.read.data() + t * slots, *dread = dcoefs->read.data() + t * slots;
          double mean = 0;
          for (int64_t k = 0; k < slots; ++k) mean += double{read[k]} * Saturated(dread[k]);
          for (int64_t k = 0; k < slots; ++k) {
            const int64_t i = t * slots + k;
            const double g = double{read[k]} * (Saturated(dread[k]) - mean), r = double{rstd[i]};
            ddot[i] = static_cast<T>(g * r);
            dsq[i] = static_cast<T>(-0.5 * g * double{score[i]} * r * r / static_cast<double>(this->dim()));
          }
        }
      });
      const T* phi = Folded(site, p);
      static thread_local Buffer<T> dphi;
      dphi.Resize(this->dim());
      dphi.Fill(T(0));
      SenseVjp(Dims(s), 1, phi, 0, this->dim(), s.slots.data(), ddot, dsq, ds.slots.data(), dphi.data());
      const auto i = static_cast<size_t>(site);
      for (int64_t d = 0; d < this->dim(); ++d) {
        dp[query_[i] + d] += dphi[d] * p[gain_[i] + d];
        dp[gain_[i] + d] += dphi[d] * p[query_[i] + d];
      }
    }
  }

 private:
  MixDims Dims(const State<T>& s) const { return {s.tokens, this->dim(), static_cast<int>(s.slots.size())}; }

  // query * gain; valid until the next call on this thread.
  const T* Folded(int site, const T* p) const {
    static thread_local Buffer<T> phi;
    const auto i = static_cast<size_t>(site);
    phi.Resize(this->dim());
    for (int64_t d = 0; d < this->dim(); ++d) phi[d] = p[query_[i] + d] * p[gain_[i] + d];
    return phi.data();
  }

  int block_;
  double eps_;
  std::vector<int64_t> query_, gain_;  // offsets, one per site and one for the head
};

}  // namespace

const Description kAttnResDescription{"", "", "", "", ""};

template <class T>
std::unique_ptr<Mechanism<T>> MakeAttnRes(OptionReader* options, const Size& size) {
  const int64_t block = options->Integer("block", (size.sites + 7) / 8, 1, 1'000'000,
                                         "sites (sublayers) per block; 1 is the full form");
  const double eps = options->Real("eps", 1e-6, 0, "added to the mean square");
  return std::make_unique<AttnRes<T>>(size, static_cast<int>(block), eps);
}

template std::unique_ptr<Mechanism<float>> MakeAttnRes(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeAttnRes(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeAttnRes(OptionReader*, const Size&);

}  // namespace strata
