#include "residual/standard.h"

#include <complex>

#include "residual/option_reader.h"

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

template <class T>
std::unique_ptr<Mechanism<T>> MakeStandard(const ResidualSpec& spec, int sites, int64_t dim) {
  OptionReader(spec).Finish();
  return std::make_unique<Standard<T>>(sites, dim);
}

template std::unique_ptr<Mechanism<float>> MakeStandard(const ResidualSpec&, int, int64_t);
template std::unique_ptr<Mechanism<double>> MakeStandard(const ResidualSpec&, int, int64_t);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeStandard(const ResidualSpec&, int, int64_t);

}  // namespace strata
