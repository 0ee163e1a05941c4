#include "residual/x0.h"

#include <complex>

#include "residual/token_sums.h"

namespace strata {
namespace {

template <class T>
class X0 : public Mechanism<T> {
 public:
  X0(const Size& size, int64_t block, bool plain) : Mechanism<T>(size), block_(block) {
    const int64_t blocks = (size.sites + block - 1) / block;
    for (int64_t i = 0; i < blocks; ++i) {
      const double at = blocks > 1 ? static_cast<double>(i) / static_cast<double>(blocks - 1) : 0;
      const std::vector<double> values =
          plain ? std::vector<double>{1, 0} : std::vector<double>{1.15 - 0.10 * at, 0.20 - 0.15 * at};
      this->Declare(fmt::format("sites.{}.weights", i * block), {2}, {Init::Kind::kValues, 0, values}, false,
                    "[2] a of the state, b of the embedding");
    }
  }

  Rule At(int site) const override {
    Rule rule;
    rule.slots = 2;
    rule.closed = site == this->sites() ? 2 : 1;
    rule.read = Coef::kToken;
    rule.keep = Begins(site) ? Coef::kToken : Coef::kOne;
    return rule;
  }

  bool shares_parameters() const override { return true; }
  void Control(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const override {
    const T a = Begins(site) ? p[2 * (site / block_)] : T(1), c = Share(site, p);
    for (int64_t t = 0; t < s.tokens; ++t) {
      coefs->read[2 * t] = c;
      coefs->read[2 * t + 1] = a;
      if (Begins(site)) coefs->keep[t] = a;
    }
  }

  void ControlVjp(int site, const T* p, const State<T>& s, const Coefs<T>& /*coefs*/, Coefs<T>* dcoefs,
                  const State<T>& /*ds*/, T* dp) const override {
    const auto narrow = [](double v) { return T(static_cast<RealOf<T>>(v)); };
    const std::vector<double> dread = TokenSums(s.tokens, 2, dcoefs->read.data());
    if (Begins(site)) {
      const double dkeep = TokenSums(s.tokens, 1, dcoefs->keep.data())[0];
      dp[2 * (site / block_)] += narrow(dread[1] + dkeep);
    }
    T dc = narrow(dread[0]);  // back through c <- a c + b
    for (int64_t i = Begun(site) - 1; i >= 0; --i) {
      dp[2 * i] += dc * Share(static_cast<int>(i * block_) - 1, p);
      dp[2 * i + 1] += dc;
      dc *= p[2 * i];
    }
  }

 private:
  bool Begins(int site) const { return site < this->sites() && site % block_ == 0; }
  // Blocks that have begun when `site` has read; none at site -1.
  int64_t Begun(int site) const {
    return site == this->sites() ? (site + block_ - 1) / block_ : (site + block_) / block_;
  }
  // c when `site` reads.
  T Share(int site, const T* p) const {
    T c(0);
    for (int64_t i = 0; i < Begun(site); ++i) c = p[2 * i] * c + p[2 * i + 1];
    return c;
  }

  int64_t block_;
};

}  // namespace

const Description kX0Description{
    "the plain connection with learned weights on the running state and on the embedding",
    "the state and embedding scalars of the modded-nanogpt and nanochat trainers",
    "h  = S_1 + c S_0                                S_0 the embedding; c a number, 0 at the start\n"
    "where a block begins:  h <- a h + b S_0         so c <- a c + b and S_1 <- a S_1\n"
    "x  = h\n"
    "h' = h + u                                      so S_1' = S_1 + u",
    "a falls from 1.15 to 1.05 and b from 0.20 to 0.05 over the blocks; with init=plain (1 and 0) it is the "
    "pre-norm Transformer",
    "the weights learn at the model's learning rate, the source's about 100 times slower"};

template <class T>
std::unique_ptr<Mechanism<T>> MakeX0(OptionReader* reader, const Size& size) {
  const int64_t block =
      reader->Integer("block", 2, 1, 1'000'000, "sites (sublayers) from one mix to the next");
  const bool plain = reader->Choice("init", {"published", "plain"}, "the weights' initial values") == "plain";
  return std::make_unique<X0<T>>(size, block, plain);
}

template std::unique_ptr<Mechanism<float>> MakeX0(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeX0(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeX0(OptionReader*, const Size&);

}  // namespace strata
