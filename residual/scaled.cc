#include "residual/scaled.h"

#include <algorithm>
#include <complex>
#include <limits>

#include "residual/token_sums.h"

namespace strata {
namespace {

constexpr int64_t kChunk = 64;  // tokens

template <class T>
class Scaled : public Mechanism<T> {
 public:
  // A gain that is not learned stays at `initial`.
  Scaled(const Size& size, bool per_channel, double initial, bool learned)
      : Mechanism<T>(size),
        per_channel_(per_channel),
        gains_(per_channel ? size.dim : 1),
        initial_(initial),
        learned_(learned) {
    for (int site = 0; learned && site < size.sites; ++site) {
      this->Declare(fmt::format("sites.{}.gain", site), {gains_}, {Init::Kind::kConstant, initial, {}}, false,
                    per_channel ? "[d] factors of the updates" : "[1] factor of the updates");
    }
  }

  Rule At(int site) const override {
    Rule rule;
    if (site == this->sites()) {
      rule.closed = 1;
      return rule;
    }
    rule.write = per_channel_ ? Coef::kChannel : Coef::kToken;
    rule.reads_update = learned_;
    return rule;
  }

  void Control(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const override {
    if (site == this->sites()) return;
    if (!learned_) return coefs->write.Fill(T(initial_));
    T* write = coefs->write.data();
    ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) std::copy_n(p + site * gains_, gains_, write + t * gains_);
    });
  }

  void ControlVjp(int site, const T* /*p*/, const State<T>& s, const Coefs<T>& /*coefs*/, Coefs<T>* dcoefs,
                  const State<T>& /*ds*/, T* dp) const override {
    if (site == this->sites() || !learned_) return;
    const std::vector<double> sums = TokenSums(s.tokens, gains_, dcoefs->write.data());
    for (int64_t i = 0; i < gains_; ++i) {
      dp[site * gains_ + i] += T(static_cast<RealOf<T>>(sums[static_cast<size_t>(i)]));
    }
  }

 private:
  bool per_channel_;
  int64_t gains_;  // per site
  double initial_;
  bool learned_;
};

// Touvron et al., section 4: smaller the deeper the model, in blocks of two sites.
double LayerScaleInit(int sites) {
  const int blocks = (sites + 1) / 2;
  return blocks <= 18 ? 0.1 : blocks <= 24 ? 1e-5 : 1e-6;
}

template <class T>
std::unique_ptr<Mechanism<T>> Make(OptionReader* reader, const Size& size, bool per_channel, double initial,
                                   const std::string& about) {
  const double init = reader->Real("init", initial, -std::numeric_limits<double>::infinity(), about);
  const bool learned = reader->Boolean("learned", true, "false: the factors stay as they start");
  return std::make_unique<Scaled<T>>(size, per_channel, init, learned);
}

}  // namespace

const Description kReZeroDescription{
    "the plain connection with one learned factor per update, which starts at 0",
    "ReZero, Bachlechner et al., arXiv 2003.04887",
    "x  = S\n"
    "S' = S + gain * u                               gain: one number",
    "every update counts 0, so the head reads the embedding; with init=1 it is the pre-norm Transformer",
    "the sublayers keep their norms, which the source leaves out"};
const Description kLayerScaleDescription{
    "the plain connection with a learned factor per channel of every update",
    "LayerScale, Touvron et al., arXiv 2103.17239",
    "x  = S\n"
    "S' = S + gain * u                               gain: one number per channel",
    "updates count little: 0.1 up to 18 blocks of two sites, 1e-5 up to 24, 1e-6 beyond; with init=1 it is "
    "the pre-norm Transformer",
    ""};

template <class T>
std::unique_ptr<Mechanism<T>> MakeReZero(OptionReader* options, const Size& size) {
  return Make<T>(options, size, false, 0, "the factors' initial value");
}
template <class T>
std::unique_ptr<Mechanism<T>> MakeLayerScale(OptionReader* options, const Size& size) {
  return Make<T>(options, size, true, LayerScaleInit(size.sites),
                 "the factors' initial value, by default 0.1, 1e-5 or 1e-6 by depth");
}

template std::unique_ptr<Mechanism<float>> MakeReZero(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeReZero(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeReZero(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<float>> MakeLayerScale(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeLayerScale(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeLayerScale(OptionReader*, const Size&);

}  // namespace strata
