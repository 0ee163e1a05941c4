#include "residual/standard.h"

#include <complex>

namespace strata {
namespace {

template <class T>
class Standard : public Mechanism<T> {
 public:
  using Mechanism<T>::Mechanism;
  Rule At(int site) const override {
    Rule rule;
    rule.closed = site < this->sites() ? 0 : 1;
    return rule;
  }
};

}  // namespace

const Description kStandardDescription{
    "the plain residual connection: every update is added to one running vector",
    "He et al., arXiv 1512.03385; with the norm before the sublayer, Xiong et al., arXiv 2002.04745",
    "x  = S\n"
    "S' = S + u",
    "this is the pre-norm Transformer", ""};

template <class T>
std::unique_ptr<Mechanism<T>> MakeStandard(OptionReader* /*options*/, const Size& size) {
  return std::make_unique<Standard<T>>(size);
}

template std::unique_ptr<Mechanism<float>> MakeStandard(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeStandard(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeStandard(OptionReader*, const Size&);

}  // namespace strata
