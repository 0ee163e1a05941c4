#include "residual/mhc.h"

#include <algorithm>
#include <complex>
#include <vector>

#include "residual/decide.h"
#include "residual/manifold.h"
#include "residual/sinkhorn.h"

namespace strata {
namespace {

template <class T>
class Mhc : public Manifold<T> {
 public:
  // eps 0: the paper's form.
  Mhc(const Size& size, const ManifoldOptions& options, int iterations)
      : Manifold<T>(size, options, Start(options.slots),
                    "[n^2+2n, n d] rows read, write, keep (to, from) row-major"),
        iterations_(iterations),
        eps_(options.read_eps) {}

 private:
  static ManifoldStart Start(int n) {
    ManifoldStart start{3, -3, 0, 0, {}};
    for (int i = 0; i < n * n; ++i) start.keep.push_back(i / n == i % n ? 3 : -3);
    return start;
  }
  // The paper's form has no eps that would keep a row of tiny numbers from vanishing in float.
  void Keep(int64_t tokens, const T* logits, int64_t stride, T* keep) const override {
    eps_ > 0 ? Project<T>(tokens, logits, stride, keep) : Project<Wide<T>>(tokens, logits, stride, keep);
  }
  void KeepVjp(int64_t tokens, const T* logits, int64_t stride, const T* dkeep, T* dlogits) const override {
    eps_ > 0 ? ProjectVjp<T>(tokens, logits, stride, dkeep, dlogits)
             : ProjectVjp<Wide<T>>(tokens, logits, stride, dkeep, dlogits);
  }
  template <class U>
  void Project(int64_t tokens, const T* logits, int64_t stride, T* keep) const;
  template <class U>
  void ProjectVjp(int64_t tokens, const T* logits, int64_t stride, const T* dkeep, T* dlogits) const;

  int iterations_;
  double eps_;
};

// The matrices of at most kLanes tokens, `stride` apart, to [n * n][kLanes] and back. Lanes without a token
// are 0.
template <class T, class U>
void ToLanes(int64_t tokens, int64_t numbers, const T* rows, int64_t stride, U* lanes) {
  constexpr int kLanes = Sinkhorn<U>::kLanes;
  std::fill_n(lanes, numbers * kLanes, U(0));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < numbers; ++i) lanes[i * kLanes + t] = static_cast<U>(rows[t * stride + i]);
  }
}
template <class T, class U>
void FromLanes(int64_t tokens, int64_t numbers, const U* lanes, T* rows, int64_t stride) {
  constexpr int kLanes = Sinkhorn<U>::kLanes;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < numbers; ++i) rows[t * stride + i] = static_cast<T>(lanes[i * kLanes + t]);
  }
}

template <class T>
template <class U>
void Mhc<T>::Project(int64_t tokens, const T* logits, int64_t stride, T* keep) const {
  static thread_local std::vector<U> lanes, history;
  const Sinkhorn<U> sinkhorn(this->slots(), iterations_, eps_);
  const int64_t numbers = this->slots() * this->slots();
  lanes.resize(static_cast<size_t>(sinkhorn.size()));
  history.resize(static_cast<size_t>(sinkhorn.history_size()));
  for (int64_t t = 0; t < tokens; t += sinkhorn.kLanes) {
    const int64_t count = std::min<int64_t>(sinkhorn.kLanes, tokens - t);
    ToLanes(count, numbers, logits + t * stride, stride, lanes.data());
    sinkhorn.Forward(lanes.data(), history.data());
    FromLanes(count, numbers, sinkhorn.Result(history.data()), keep + t * numbers, numbers);
  }
}

template <class T>
template <class U>
void Mhc<T>::ProjectVjp(int64_t tokens, const T* logits, int64_t stride, const T* dkeep, T* dlogits) const {
  static thread_local std::vector<U> lanes, history;
  const Sinkhorn<U> sinkhorn(this->slots(), iterations_, eps_);
  const int64_t numbers = this->slots() * this->slots();
  lanes.resize(static_cast<size_t>(sinkhorn.size()));
  history.resize(static_cast<size_t>(sinkhorn.history_size()));
  for (int64_t t = 0; t < tokens; t += sinkhorn.kLanes) {
    const int64_t count = std::min<int64_t>(sinkhorn.kLanes, tokens - t);
    ToLanes(count, numbers, logits + t * stride, stride, lanes.data());
    sinkhorn.Forward(lanes.data(), history.data());
    ToLanes(count, numbers, dkeep + t * numbers, numbers, lanes.data());
    sinkhorn.Vjp(history.data(), lanes.data());
    FromLanes(count, numbers, lanes.data(), dlogits + t * stride, stride);
  }
}

}  // namespace

const Description kMhcDescription{
    "n streams, mixed at every site by a nearly doubly stochastic matrix (Sinkhorn)",
    "mHC, arXiv 2512.24880, eq. 3 and 7-9; form=v4 after the inference code of DeepSeek-V4",
    "v      = the n slots as one vector of n d numbers\n"
    "T      = scale * (projection v / sqrt(mean(v^2) + norm-eps)) + bias     read, write, keep\n"
    "read   = sigmoid(T) + eps\n"
    "write  = 2 sigmoid(T)\n"
    "keep   = rows(softmax over `to`(T) + eps), then iterations - 1 times rows(columns(keep)),\n"
    "         each line divided by (its sum + eps); form=paper: eps = 0\n"
    "x      = sum_k read[k] S_k\n"
    "S'_j   = sum_k keep[j,k] S_k + write[j] u\n"
    "output = mean or sum of the slots, or sum_k (sigmoid(T'[k]) + eps) S_k with the head's own T'",
    "the slots start and stay equal, and each is the pre-norm Transformer's running vector, but sublayers "
    "read "
    "1.095 times it at n = 4 (.953 of the home slot s mod n and .047 of each other), which their norms "
    "absorb; "
    "every write is 1 and keep has .993 on its diagonal",
    "the paper states neither the biases nor the collapse: the initial biases (3 and -3), projection = 0 and "
    "collapse=mean are this project's; the norm before the projection has no gain"};

template <class T>
std::unique_ptr<Mechanism<T>> MakeMhc(OptionReader* reader, const Size& size) {
  ManifoldOptions options;
  options.slots = static_cast<int>(reader->Integer("slots", 4, 1, JointLogits<T>::kMostSlots, "streams"));
  const auto iterations = static_cast<int>(
      reader->Integer("iterations", 20, 1, 1000, "of Sinkhorn; the softmax counts as the first columns"));
  const bool paper =
      reader->Choice("form", {"v4", "paper"}, "v4: DeepSeek-V4's code, with eps; paper: eq. 7-9") == "paper";
  options.read_eps =
      reader->Real("eps", 1e-6, 0, "added to read and in every step of Sinkhorn; form=v4 only");
  if (paper && reader->Given("eps")) reader->Refuse("eps", "no eps with form=paper");
  if (paper) options.read_eps = 0;
  options.norm_eps = reader->Real("norm-eps", 1e-6, 0, "added to the mean square of all slots");
  options.collapse = reader->Choice("collapse", {"mean", "sum", "head"}, "how the head makes one of n slots");
  return std::make_unique<Mhc<T>>(size, options, iterations);
}

template std::unique_ptr<Mechanism<float>> MakeMhc(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<double>> MakeMhc(OptionReader*, const Size&);
template std::unique_ptr<Mechanism<std::complex<double>>> MakeMhc(OptionReader*, const Size&);

}  // namespace strata
