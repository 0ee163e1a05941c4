#ifndef STRATA_RESIDUAL_TESTING_H_
#define STRATA_RESIDUAL_TESTING_H_

#include <cmath>
#include <complex>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "residual/walker.h"

// A small model around a mechanism, for the conformance tests: token-local sublayers
//   u[d] = tanh(w[d] * x[d] + w[dim] * x[(d + 1) mod dim])
// with weights w [dim + 1] per site.
namespace strata {

template <class T>
using Numbers = std::vector<T>;

// Every mechanism in every form of the conformance grid.
inline std::vector<std::string> ConformanceSpecs() {
  std::vector<std::string> specs{"standard",
                                 "highway",
                                 "highway:gate-bias=1",
                                 "state-gate",
                                 "review",
                                 "review:form=convex",
                                 "review:form=convex,eps=0.1",
                                 "dense",
                                 "dense:block=1",
                                 "dense:block=3",
                                 "rezero",
                                 "rezero:init=0.5,learned=false",
                                 "layerscale",
                                 "x0",
                                 "x0:block=1",
                                 "x0:block=3,init=plain"};
  for (const int block : {1, 2, 3, 4, 100}) specs.push_back(fmt::format("attnres:block={}", block));
  for (const char* options :
       {"weights=sigmoid", "weights=static", "query=input", "heads=1,query=input,key-norm=false", "window=1",
        "window=2,block=1", "key-norm=false", "weights=sigmoid,window=1,block=1"}) {
    specs.push_back(fmt::format("attnres:{}", options));
  }
  for (const char* options :
       {"slots=1", "slots=2,rank=3", "slots=3,head=mean", "slots=4,rank=1", "slots=5", "slots=8"}) {
    specs.push_back(fmt::format("gated:{}", options));
  }
  const auto add = [&](const std::string& spec) { specs.push_back(spec); };
  for (const char* form : {"slots=1", "slots=2,norm=rms", "slots=3,collapse=mean", "slots=4,collapse=head",
                           "slots=5,tanh=false,norm=rms,collapse=head", "slots=8,tanh=false,collapse=mean",
                           "slots=1,dynamic=false", "slots=3,dynamic=false,collapse=head"}) {
    add(fmt::format("hc:{}", form));
  }
  const char* collapses[] = {"mean", "sum", "head"};
  int turn = 0;
  for (const char* form : {"v4", "paper"}) {
    for (const int slots : {1, 2, 3, 5, 8}) {
      const int iterations = slots > 4 ? 3 : 20;
      add(fmt::format("mhc:slots={},form={},collapse={},iterations={}", slots, form, collapses[turn++ % 3],
                      iterations));
    }
    for (const char* collapse : collapses) add(fmt::format("mhc:form={},collapse={}", form, collapse));
  }
  for (const int slots : {1, 2, 3, 4, 5}) {
    add(fmt::format("mhc-lite:slots={},collapse={}", slots, collapses[turn++ % 3]));
  }
  for (const int slots : {1, 2, 4, 8}) {
    add(fmt::format("krom:slots={},collapse={}", slots, collapses[turn++ % 3]));
  }
  return specs;
}

inline std::string NameOf(const std::string& spec) { return spec.substr(0, spec.find(':')); }

inline Numbers<double> RandomNumbers(int64_t size, double deviation, uint64_t seed) {
  Random random(seed);
  Numbers<double> numbers(static_cast<size_t>(size));
  for (double& v : numbers) v = deviation * random.Normal();
  return numbers;
}

template <class T>
Numbers<T> Cast(const Numbers<double>& from) {
  Numbers<T> to;
  for (const double v : from) to.push_back(static_cast<T>(v));
  return to;
}

template <class T>
struct Toy {
  Toy(const std::string& spec, int sites_, int64_t dim_)
      : mechanism(MakeMechanism<T>(ParseResidual(spec), sites_, dim_)), sites(sites_), dim(dim_) {
    int64_t size = 0;
    for (const Parameter& p : mechanism->Parameters()) size += p.size();
    parameters.assign(static_cast<size_t>(size), T(0));
    weights.assign(static_cast<size_t>(sites * (dim + 1)), T(0));
  }
  // Not the initial values: all gates, norms and mixing matrices in their working range.
  void Randomise(uint64_t seed) {
    parameters = Cast<T>(RandomNumbers(static_cast<int64_t>(parameters.size()), 0.7, seed));
    T* at = parameters.data();
    for (const Parameter& p : mechanism->Parameters()) {
      const double inputs = p.shape.size() == 2 ? static_cast<double>(p.shape[1]) : 1;
      for (int64_t i = 0; i < p.size(); ++i) *at++ *= static_cast<T>(std::min(1.0, 2 / std::sqrt(inputs)));
    }
    weights = Cast<T>(RandomNumbers(static_cast<int64_t>(weights.size()), 0.9, seed + 1));
  }
  void SetInitial() {
    size_t at = 0;
    for (const Parameter& p : mechanism->Parameters()) {
      for (int64_t i = 0; i < p.size(); ++i) {
        parameters[at++] = static_cast<T>(
            p.init.kind == Init::Kind::kValues ? p.init.values[static_cast<size_t>(i)] : p.init.value);
      }
    }
  }
  void Sublayer(int site, int64_t tokens, const T* x, T* u) const {
    const T* w = weights.data() + site * (dim + 1);
    for (int64_t i = 0; i < tokens * dim; ++i) {
      const int64_t d = i % dim;
      u[i] = std::tanh(w[d] * x[i] + w[dim] * x[i - d + (d + 1) % dim]);
    }
  }
  // dx assigned, dw accumulated.
  void SublayerVjp(int site, int64_t tokens, const T* x, const T* du, T* dx, T* dw) const {
    const T* w = weights.data() + site * (dim + 1);
    T* of_site = dw + site * (dim + 1);
    std::fill_n(dx, tokens * dim, T(0));
    for (int64_t i = 0; i < tokens * dim; ++i) {
      const int64_t d = i % dim, next = i - d + (d + 1) % dim;
      const T cosh = std::cosh(w[d] * x[i] + w[dim] * x[next]);  // 1 - tanh^2 would cancel where tanh is 1
      const T g = du[i] / (cosh * cosh);
      of_site[d] += g * x[i];
      of_site[dim] += g * x[next];
      dx[i] += g * w[d];
      dx[next] += g * w[dim];
    }
  }
  std::unique_ptr<Mechanism<T>> mechanism;
  int sites;
  int64_t dim;
  Numbers<T> parameters, weights;
};

// All x of a pass: [sites + 1][tokens * dim].  u_change is added to the update of site `changed`.
template <class T>
std::vector<Numbers<T>> Forward(const Toy<T>& toy, Walker<T>* walker, const Numbers<T>& e, int changed = -1,
                                T u_change = T(0)) {
  const int64_t tokens = static_cast<int64_t>(e.size()) / toy.dim;
  std::vector<Numbers<T>> all;
  const T* x = walker->Begin(toy.parameters.data(), e.data(), tokens);
  for (int s = 0;; ++s) {
    all.emplace_back(x, x + e.size());
    if (s == toy.sites) return all;
    T* u = walker->update();
    toy.Sublayer(s, tokens, x, u);
    if (s == changed) {
      for (size_t i = 0; i < e.size(); ++i) u[i] += u_change;
    }
    x = walker->Next();
  }
}

template <class T>
struct Gradients {
  Numbers<T> embedding, parameters, weights;
};

// After Forward with a training walker, whose x values `all` are.
template <class T>
Gradients<T> Backward(const Toy<T>& toy, Walker<T>* walker, const std::vector<Numbers<T>>& all,
                      const Numbers<T>& cotangent) {
  Gradients<T> g{{}, Numbers<T>(toy.parameters.size()), Numbers<T>(toy.weights.size())};
  const int64_t tokens = static_cast<int64_t>(cotangent.size()) / toy.dim;
  Numbers<T> dx(cotangent.size());
  const T* du = walker->BeginBack(cotangent.data(), g.parameters.data());
  for (int s = toy.sites - 1; s >= 0; --s) {
    toy.SublayerVjp(s, tokens, all[static_cast<size_t>(s)].data(), du, dx.data(), g.weights.data());
    du = walker->Back(dx.data());
  }
  g.embedding.assign(du, du + cotangent.size());
  return g;
}

}  // namespace strata

#endif  // STRATA_RESIDUAL_TESTING_H_
