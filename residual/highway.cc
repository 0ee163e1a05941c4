#include "residual/highway.h"

#include <complex>
#include <limits>

#include "residual/decide.h"
#include "residual/gates.h"

namespace strata {
namespace {

constexpr int64_t kChunk = kProjectRows;  // tokens

template <class T>
class Highway : public Mechanism<T> {
 public:
  Highway(const Size& size, bool keeps_rest, double bias) : Mechanism<T>(size), keeps_rest_(keeps_rest) {
    const int64_t d = size.dim;
    for (int site = 0; site < size.sites; ++site) {
      const std::string prefix = fmt::format("sites.{}.gate.", site);
      weight_.push_back(
          this->Declare(prefix + "weight", {d, d}, {Init::Kind::kNormal, 0.02, {}}, true, "[d, d] W"));
      bias_.push_back(this->Declare(prefix + "bias", {d}, {Init::Kind::kConstant, bias, {}}, false, "[d] b"));
    }
  }

  Rule At(int site) const override {
    Rule rule;
    if (site == this->sites()) {
      rule.closed = 1;
      return rule;
    }
    rule.keep = keeps_rest_ ? Coef::kChannel : Coef::kOne;
    rule.write = Coef::kChannel;
    rule.reads_update = true;
    return rule;
  }

  bool wide() const override { return true; }
  void Control(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const override {
    if (site == this->sites()) return;
    const int64_t dim = this->dim();
    const T *weight = p + weight_[static_cast<size_t>(site)], *bias = p + bias_[static_cast<size_t>(site)];
    ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
      Project(end - begin, dim, dim, weight, dim, s.slots[0] + begin * dim,
              coefs->write.data() + begin * dim);
      for (int64_t i = begin * dim; i < end * dim; ++i) {
        coefs->write[i] = Sigmoid(coefs->write[i] + bias[i % dim]);
        if (keeps_rest_) coefs->keep[i] = T(1) - coefs->write[i];
      }
    });
  }

  void ControlVjp(int site, const T* p, const State<T>& s, const Coefs<T>& coefs, Coefs<T>* dcoefs,
                  const State<T>& ds, T* dp) const override {
    if constexpr (std::is_floating_point_v<T>) {
      if (site == this->sites()) return;
      const int64_t dim = this->dim(), at = weight_[static_cast<size_t>(site)];
      GateLogitsVjp(s.tokens, dim, keeps_rest_, coefs, dcoefs, dp + bias_[static_cast<size_t>(site)]);
      ParallelFor(s.tokens, kChunk, [&](int64_t begin, int64_t end) {
        static thread_local Buffer<T> through;
        through.Resize((end - begin) * dim);
        ProjectBack(end - begin, dim, dim, p + at, dim, dcoefs->write.data() + begin * dim, through.data());
        for (int64_t i = begin * dim; i < end * dim; ++i) ds.slots[0][i] += through[i - begin * dim];
      });
      ProjectWeights(s.tokens, dim, dim, dcoefs->write.data(), s.slots[0], dp + at, dim);
    }
  }

  std::vector<Intermediate> Inside(int site, const T* /*p*/, const State<T>& s,
                                   const Coefs<T>& coefs) const override {
    if (site == this->sites()) return {};
    return {GateInside(s.tokens, this->dim(), coefs)};
  }

 private:
  bool keeps_rest_;
  std::vector<int64_t> weight_, bias_;  // offsets, per site
};

template <class T>
std::unique_ptr<Mechanism<T>> Make(OptionReader* reader, const Size& size, bool keeps_rest, double bias) {
  bias =
      reader->Real("gate-bias", bias, -std::numeric_limits<double>::infinity(), "initial bias of the gates");
  return std::make_unique<Highway<T>>(size, keeps_rest, bias);
}

}  // namespace

const Description kHighwayDescription{
    "a gate of every channel shares each place between the old state and the update",
    "Highway Networks, Srivastava et al., arXiv 1505.00387",
    "t  = sigmoid(W S + b)\n"
    "x  = S\n"
    "S' = (1 - t) * S + t * u",
    "with gate-bias=-2 about 0.88 of the state is carried; not pre-norm", ""};
const Description kStateGateDescription{
    "a gate of every channel, decided from the state, scales each update",
    "the state-gated baseline of Review Residuals, arXiv 2606.31859 (there called Highway)",
    "t  = sigmoid(W S + b)\n"
    "x  = S\n"
    "S' = S + t * u",
    "gates are about 1/2; with gate-bias=40 and W = 0 it is the pre-norm Transformer exactly", ""};

template <class T>
std::unique_ptr<Mechanism<T>> MakeHighway(OptionReader* options, const Size& size) {
  return Make<T>(options, size, true, -2);
}
template <class T>
std::unique_ptr<Mechanism<T>> MakeStateGate(OptionReader* options, const Size& size) {
  return Make<T>(options, size, false, 0);
}

template std::unique_ptr<Mechanism<float>> MakeHighway(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeHighway(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeHighway(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<float>> MakeStateGate(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeStateGate(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeStateGate(OptionReader*, const Size&);

}  // namespace strata
