#include "residual/krom.h"

#include <complex>
#include <vector>

#include "residual/decide.h"
#include "residual/manifold.h"

namespace strata {
namespace {

constexpr int kMostSlots = 32;
constexpr int kMostFactors = 5;

int FactorsOf(int slots) {
  int factors = 0;
  while (1 << factors < slots) ++factors;
  return factors;
}

// keep[to, from] depends on the bits where `to` and `from` differ alone: `products` holds it for every set of
// bits. Level k, the product of factors 0 .. k - 1, lies at [2^k, 2^(k + 1)); the last one is the whole.
template <class T>
struct Kronecker {
  Kronecker(int factors_, const T* logits) : factors(factors_) {
    products[1] = T(1);
    for (int k = 0; k < factors; ++k) {
      // The smaller weight with all its digits, the larger one so that they sum to 1.
      const T less = Real(logits[2 * k]) < Real(logits[2 * k + 1]) ? logits[2 * k] - logits[2 * k + 1]
                                                                   : logits[2 * k + 1] - logits[2 * k];
      const bool swaps = Real(logits[2 * k]) < Real(logits[2 * k + 1]);
      weights[k][swaps ? 0 : 1] = Sigmoid(less);
      weights[k][swaps ? 1 : 0] = T(1) - Sigmoid(less);
      const int half = 1 << k;
      for (int i = 0; i < half; ++i) {
        products[2 * half + i] = products[half + i] * weights[k][0];
        products[3 * half + i] = products[half + i] * weights[k][1];
      }
    }
  }
  const T* Whole() const { return products + (1 << factors); }
  // g [2^factors]: dL/d whole, overwritten; dlogits [2 * factors] assigned.
  void Vjp(T* g, T* dlogits) const {
    for (int k = factors - 1; k >= 0; --k) {
      const int half = 1 << k;
      T same = T(0), swapped = T(0);
      for (int i = 0; i < half; ++i) {
        same += g[i] * products[half + i];
        swapped += g[half + i] * products[half + i];
        g[i] = g[i] * weights[k][0] + g[half + i] * weights[k][1];
      }
      dlogits[2 * k] = weights[k][0] * weights[k][1] * (same - swapped);
      dlogits[2 * k + 1] = -dlogits[2 * k];
    }
  }
  int factors;
  T weights[kMostFactors][2];
  T products[2 * kMostSlots];
};

template <class T>
class Krom : public Manifold<T> {
 public:
  Krom(const Size& size, const ManifoldOptions& options)
      : Manifold<T>(size, options, Start(FactorsOf(options.slots)),
                    "[2n+2K, n d] rows read, write, (identity, swap) of each factor"),
        factors_(FactorsOf(options.slots)) {}

 private:
  static ManifoldStart Start(int factors) {
    ManifoldStart start{1, -1, 1, -1, {}};
    for (int k = 0; k < factors; ++k) start.keep.insert(start.keep.end(), {0, -8});
    return start;
  }
  void Keep(int64_t tokens, const T* logits, int64_t stride, T* keep) const override {
    const int n = this->slots();
    for (int64_t t = 0; t < tokens; ++t, keep += n * n) {
      const Kronecker<T> kronecker(factors_, logits + t * stride);
      for (int to = 0; to < n; ++to) {
        for (int from = 0; from < n; ++from) keep[to * n + from] = kronecker.Whole()[to ^ from];
      }
    }
  }
  void KeepVjp(int64_t tokens, const T* logits, int64_t stride, const T* dkeep, T* dlogits) const override {
    const int n = this->slots();
    T g[kMostSlots];
    for (int64_t t = 0; t < tokens; ++t, dkeep += n * n) {
      const Kronecker<T> kronecker(factors_, logits + t * stride);
      for (int differ = 0; differ < n; ++differ) {
        g[differ] = T(0);
        for (int to = 0; to < n; ++to) g[differ] += dkeep[to * n + (to ^ differ)];
      }
      kronecker.Vjp(g, dlogits + t * stride);
    }
  }

  int factors_;
};

}  // namespace

const Description kKromDescription{
    "n = 2^K streams, mixed at every site by a Kronecker product of K 2 x 2 matrices",
    "KromHC, arXiv 2601.21579, all factors of size 2; the frame is mHC's, arXiv "
    "2512.24880",
    "v      = the n slots as one vector of n d numbers\n"
    "T      = scale * (projection v / sqrt(mean(v^2) + norm-eps)) + bias     read, write, keep\n"
    "read   = sigmoid(T)\n"
    "write  = 2 sigmoid(T)\n"
    "U_k    = a_k [[1,0],[0,1]] + b_k [[0,1],[1,0]]      (a_k, b_k) = softmax of the two T of factor k\n"
    "keep   = U_{K-1} (x) ... (x) U_0      factor 0: the fastest-moving index of the slot number\n"
    "x      = sum_k read[k] S_k\n"
    "S'_j   = sum_k keep[j,k] S_k + write[j] u\n"
    "output = mean or sum of the slots, or sum_k sigmoid(T'[k]) S_k with the head's own T'",
    "not the pre-norm Transformer: site s reads .731 of its home slot s mod n and .269 of each other (n = 4: "
    "1.538 in all), writes 1.462 "
    "to "
    "its home slot and .538 to each other; keep has .9993 on its diagonal at n = 4",
    "factors of size 2 only, so n is a power of two (a prime n would be mhc-lite); no gain in the norm "
    "before "
    "the projection"};

template <class T>
std::unique_ptr<Mechanism<T>> MakeKrom(OptionReader* reader, const Size& size) {
  ManifoldOptions options;
  options.slots = static_cast<int>(reader->Integer("slots", 4, 1, kMostSlots, "streams, a power of two"));
  if (1 << FactorsOf(options.slots) != options.slots) {
    reader->Refuse("slots", fmt::format("a power of two from 1 to {} (keep is a product of 2 x 2 matrices)",
                                        kMostSlots));
  }
  options.norm_eps = reader->Real("norm-eps", 1e-6, 0, "added to the mean square of all slots");
  options.collapse = reader->Choice("collapse", {"mean", "sum", "head"}, "how the head makes one of n slots");
  return std::make_unique<Krom<T>>(size, options);
}

template std::unique_ptr<Mechanism<float>> MakeKrom(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeKrom(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeKrom(OptionReader*, const Size&);

}  // namespace strata
