#include "residual/mhc_lite.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numeric>
#include <vector>

#include "residual/decide.h"
#include "residual/manifold.h"

namespace strata {
namespace {

constexpr int kMostSlots = 5;
constexpr int kMostPermutations = 120;

// All permutations of 0 .. n - 1 in lexicographic order, [n!][n].
std::vector<int> Permutations(int n) {
  std::vector<int> all, p(static_cast<size_t>(n));
  std::iota(p.begin(), p.end(), 0);
  do all.insert(all.end(), p.begin(), p.end());
  while (std::next_permutation(p.begin(), p.end()));
  return all;
}

template <class T>
class MhcLite : public Manifold<T> {
 public:
  MhcLite(const Size& size, const ManifoldOptions& options)
      : MhcLite(size, options, Permutations(options.slots)) {}

 private:
  MhcLite(const Size& size, const ManifoldOptions& options, std::vector<int> permutations)
      : Manifold<T>(size, options, Start(static_cast<int64_t>(permutations.size()) / options.slots),
                    "[n!+2n, n d] rows read, write, permutations in lexicographic order"),
        count_(static_cast<int64_t>(permutations.size()) / options.slots) {
    const int n = options.slots;
    for (size_t i = 0; i < permutations.size(); ++i) {
      places_.push_back(static_cast<int>(i) % n * n + permutations[i]);
    }
  }
  static ManifoldStart Start(int64_t count) {
    ManifoldStart start{1, -1, 1, -1, std::vector<double>(static_cast<size_t>(count), -8)};
    start.keep[0] = 0;
    return start;
  }
  // Row 0 sums the (n - 1)! neighbours that read from the same slot: divided by its sum, which few roundings
  // made, all rows and columns sum to 1 within a few ulp.
  void Keep(int64_t tokens, const T* logits, int64_t stride, T* keep) const override {
    const int n = this->slots();
    std::fill_n(keep, tokens * n * n, T(0));
    for (int64_t t = 0; t < tokens; ++t, logits += stride, keep += n * n) {
      RealOf<T> top = Real(logits[0]);
      for (int64_t i = 1; i < count_; ++i) top = std::max(top, Real(logits[i]));
      const int* place = places_.data();
      for (int64_t i = 0; i < count_; ++i) {
        const T weight = std::exp(logits[i] - T(top));
        for (int to = 0; to < n; ++to) keep[*place++] += weight;
      }
      T sum = T(0);
      for (int from = 0; from < n; ++from) sum += keep[from];
      for (int i = 0; i < n * n; ++i) keep[i] /= sum;
    }
  }
  // With w the weights:  dw[p] = sum_to dkeep[to, p(to)],  dlogits = w * (dw - sum w dw).
  void KeepVjp(int64_t tokens, const T* logits, int64_t stride, const T* dkeep, T* dlogits) const override {
    const int n = this->slots();
    T weights[kMostPermutations];
    for (int64_t t = 0; t < tokens; ++t, logits += stride, dkeep += n * n, dlogits += stride) {
      Softmax(count_, logits, weights);
      const int* place = places_.data();
      T mean = T(0);
      for (int64_t i = 0; i < count_; ++i) {
        T sum = T(0);
        for (int to = 0; to < n; ++to) sum += dkeep[*place++];
        dlogits[i] = sum;
        mean += weights[i] * sum;
      }
      for (int64_t i = 0; i < count_; ++i) dlogits[i] = weights[i] * (dlogits[i] - mean);
    }
  }

  int64_t count_;            // n!
  std::vector<int> places_;  // [n!][n]: where P_p has its ones in a matrix [n, n], row by row
};

}  // namespace

const Description kMhcLiteDescription{
    "n streams, mixed at every site by a weighted mean of all n! permutations",
    "mHC-lite, arXiv 2601.05732 (the convex hull of the permutations, after Birkhoff and von Neumann); the "
    "frame is mHC's, arXiv 2512.24880",
    "v      = the n slots as one vector of n d numbers\n"
    "T      = scale * (projection v / sqrt(mean(v^2) + norm-eps)) + bias     read, write, keep\n"
    "read   = sigmoid(T)\n"
    "write  = 2 sigmoid(T)\n"
    "keep   = sum_p softmax(T)[p] P_p      all n! permutations p, lexicographic; P_p[to, p(to)] = 1\n"
    "x      = sum_k read[k] S_k\n"
    "S'_j   = sum_k keep[j,k] S_k + write[j] u\n"
    "output = mean or sum of the slots, or sum_k sigmoid(T'[k]) S_k with the head's own T'",
    "not the pre-norm Transformer: site s reads .731 of its home slot s mod n and .269 of each other (n = 4: "
    "1.538 in all), writes 1.462 "
    "to "
    "its home slot and .538 to each other; keep has .992 of the identity at n = 4",
    "no gain in the norm before the projection; collapse=mean where its code sums"};

template <class T>
std::unique_ptr<Mechanism<T>> MakeMhcLite(OptionReader* reader, const Size& size) {
  ManifoldOptions options;
  options.slots = static_cast<int>(reader->Integer(
      "slots", 4, 1, kMostSlots, "streams; n! permutations are weighed",
      "every site weighs all n! permutations, 720 of them at 6 slots; krom goes on from there"));
  options.norm_eps = reader->Real("norm-eps", 1e-6, 0, "added to the mean square of all slots");
  options.collapse = reader->Choice("collapse", {"mean", "sum", "head"}, "how the head makes one of n slots");
  return std::make_unique<MhcLite<T>>(size, options);
}

template std::unique_ptr<Mechanism<float>> MakeMhcLite(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeMhcLite(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeMhcLite(OptionReader*, const Size&);

}  // namespace strata
