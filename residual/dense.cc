#include "residual/dense.h"

#include <algorithm>
#include <complex>

#include "base/error.h"
#include "residual/token_sums.h"

namespace strata {
namespace {

template <class T>
class Dense : public Mechanism<T> {
 public:
  Dense(const Size& size, int64_t block) : Mechanism<T>(size), block_(block) {
    const int64_t groups = Averages(size.sites);
    for (int64_t i = 1; i <= groups; ++i) {
      std::vector<double> plain(static_cast<size_t>(i + 1), 0.0);
      plain.back() = 1;
      const std::string name =
          i < groups ? fmt::format("sites.{}.weights", i * block) : std::string("head.weights");
      offsets_.push_back(this->Declare(name, {i + 1}, {Init::Kind::kValues, 0, std::move(plain)}, false,
                                       "[blocks + 1] alpha of the embedding and each block so far"));
    }
  }

  Rule At(int site) const override {
    const auto block = static_cast<int>(block_);
    Rule rule;
    rule.slots = 1 + (site + block - 1) / block;
    rule.append = site < this->sites() && site % block == 0;
    rule.closed = rule.append || site == this->sites() ? rule.slots : rule.slots - 1;
    rule.read = Coef::kToken;
    return rule;
  }

  bool shares_parameters() const override { return true; }
  void Control(int site, const T* p, const State<T>& s, Coefs<T>* coefs) const override {
    const auto slots = static_cast<int64_t>(s.slots.size());
    const std::vector<Row> y = Combinations(Averages(site), p).y;
    std::vector<T> read = y.back();
    read.resize(static_cast<size_t>(slots), T(1));  // the block that is open
    for (int64_t t = 0; t < s.tokens; ++t)
      std::copy(read.begin(), read.end(), coefs->read.data() + t * slots);
  }

  // Back through Y_i = sum_j alpha_ij X_j and X_j = Y_{j-1} + B_j, the last average first.
  void ControlVjp(int site, const T* p, const State<T>& s, const Coefs<T>& /*coefs*/, Coefs<T>* dcoefs,
                  const State<T>& /*ds*/, T* dp) const override {
    const int64_t last = Averages(site);
    const Rows rows = Combinations(last, p);
    std::vector<Row> dy(rows.y.size(), Row(rows.y.size(), T(0)));
    const std::vector<double> sums =
        TokenSums(s.tokens, static_cast<int64_t>(s.slots.size()), dcoefs->read.data());
    for (size_t k = 0; k < rows.y.size(); ++k) dy.back()[k] = T(static_cast<RealOf<T>>(sums[k]));
    for (auto i = static_cast<size_t>(last); i > 0; --i) {
      const int64_t alpha = offsets_[i - 1];
      for (size_t j = 0; j <= i; ++j) {
        for (size_t k = 0; k <= j; ++k) {
          dp[alpha + static_cast<int64_t>(j)] += dy[i][k] * rows.x[j][k];
          if (j > 0) dy[j - 1][k] += p[alpha + static_cast<int64_t>(j)] * dy[i][k];
        }
      }
    }
  }

 private:
  using Row = std::vector<T>;  // factors of the slots
  struct Rows {
    std::vector<Row> x, y;
  };

  // Averages taken when `site` reads: one per complete block, and at the head also after a short last one.
  int64_t Averages(int site) const {
    return site == this->sites() ? (site + block_ - 1) / block_ : site / block_;
  }
  // X_0 .. X_last and Y_0 .. Y_last over the slots.
  Rows Combinations(int64_t last, const T* p) const {
    const auto size = static_cast<size_t>(last) + 1;
    Rows rows{{Row{T(1)}}, {Row{T(1)}}};
    for (size_t i = 1; i < size; ++i) {
      rows.x.push_back(rows.y.back());
      rows.x.back().push_back(T(1));
      Row y(i + 1, T(0));
      for (size_t j = 0; j <= i; ++j) {
        const T alpha = p[offsets_[i - 1] + static_cast<int64_t>(j)];
        for (size_t k = 0; k <= j; ++k) y[k] += alpha * rows.x[j][k];
      }
      rows.y.push_back(std::move(y));
    }
    return rows;
  }

  int64_t block_;
  std::vector<int64_t> offsets_;  // of the weights of average i + 1
};

}  // namespace

const Description kDenseDescription{
    "after every block a learned weighted mean of the embedding and all blocks' outputs",
    "DenseFormer, Pagliardini et al., arXiv 2402.02622",
    "X_0 = Y_0 = the embedding\n"
    "X_i = Y_{i-1} + the updates of block i          inside a block: the plain connection\n"
    "Y_i = sum_{j <= i} alpha_ij X_j                 what block i + 1 (or the head) reads first\n"
    "slots: the embedding and the sum of each block's updates; Y_i is written as their combination",
    "alpha_ii = 1 and all others 0: this is the pre-norm Transformer",
    "neither dilation nor period: every block's output is averaged over all earlier ones"};

template <class T>
std::unique_ptr<Mechanism<T>> MakeDense(OptionReader* reader, const Size& size) {
  if (size.given > 1) FailUsage("dense: expected to start from the embedding, got {} slots", size.given);
  const int64_t block =
      reader->Integer("block", 2, 1, 1'000'000, "sites (sublayers) from one average to the next");
  return std::make_unique<Dense<T>>(size, block);
}

template std::unique_ptr<Mechanism<float>> MakeDense(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeDense(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeDense(OptionReader*, const Size&);

}  // namespace strata
