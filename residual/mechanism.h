#ifndef STRATA_RESIDUAL_MECHANISM_H_
#define STRATA_RESIDUAL_MECHANISM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "residual/option_reader.h"
#include "residual/state.h"

namespace strata {

// How a parameter starts. kNormal: N(0, value^2). kValues: `values` in row-major order.
struct Init {
  enum class Kind { kConstant, kNormal, kValues };
  Kind kind = Kind::kConstant;
  double value = 0;
  std::vector<double> values;
};

// One tensor, declared once for the optimiser, the checkpoint and the documentation.
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  Init init;
  bool decays = false;  // does weight decay apply
  std::string about{};  // shape in symbols and meaning, for the documentation: "[n, d] read gates"
  int64_t size() const {
    int64_t product = 1;
    for (const int64_t extent : shape) product *= extent;
    return product;
  }
};

// What a mechanism is built for.
struct Size {
  int sites = 1;
  int64_t dim = 1;
  int given = 0;  // slots that a pass starts from, for mechanisms that take any number; 0: the embedding
};

// Numbers that a mechanism computed on its way to the coefficients: [tokens] + shape, row-major.
struct Intermediate {
  std::string name;
  std::vector<int64_t> shape;  // of one token
  std::vector<double> values;
};

// A residual connection: decides the law's coefficients and knows nothing of attention, files or clocks.
// All parameters lie in one flat array in the order of Parameters(); `p` and `dp` point at its start.
template <class T>
class Mechanism {
 public:
  explicit Mechanism(const Size& size) : sites_(size.sites), dim_(size.dim) {}
  virtual ~Mechanism() = default;
  int sites() const { return sites_; }  // sublayers; site index sites() is the head, which only reads
  int64_t dim() const { return dim_; }
  const std::vector<Parameter>& Parameters() const { return parameters_; }

  virtual Rule At(int site) const = 0;
  // Does it decide by wide matrix products, which want all tokens at once? Else the walker decides, reads and
  // writes a few tokens after the other, whose rows then stay in the cache.
  virtual bool wide() const { return false; }
  // Does a site also use the parameters of earlier sites? Else its gradients go to its own (sites.S.* or
  // head.*).
  virtual bool shares_parameters() const { return false; }
  // Slots at the start; each is a copy of the embedding (or given, see Walker::Begin).
  int open_slots() const { return At(0).slots; }
  // Before the sublayer: assigns coefs.read, and coefs.keep and .write unless rule.sees_update. The walker
  // has sized read, keep, write and saved for the rule.
  virtual void Control(int /*site*/, const T* /*p*/, const State<T>& /*s*/, Coefs<T>* /*coefs*/) const {}
  // After it, when rule.sees_update: assigns coefs.keep and .write.
  virtual void Review(int /*site*/, const T* /*p*/, const State<T>& /*s*/, const T* /*u*/,
                      Coefs<T>* /*coefs*/) const {}
  // Gradients: ds, dp (and du for Review) accumulated; dcoefs holds dL/d(read, keep, write), which
  // may be overwritten, and its `saved` is free to use. ReviewVjp comes before the sublayer's backward pass
  // and ControlVjp after it.
  virtual void ControlVjp(int /*site*/, const T* /*p*/, const State<T>& /*s*/, const Coefs<T>& /*coefs*/,
                          Coefs<T>* /*dcoefs*/, const State<T>& /*ds*/, T* /*dp*/) const {}
  virtual void ReviewVjp(int /*site*/, const T* /*p*/, const State<T>& /*s*/, const T* /*u*/,
                         const Coefs<T>& /*coefs*/, Coefs<T>* /*dcoefs*/, const State<T>& /*ds*/, T* /*du*/,
                         T* /*dp*/) const {}

  // Why the initial values would keep slots equal for ever, so that no model should start from them; else "".
  virtual std::string EqualForEver() const { return {}; }
  // What a user who trains it should know first; else "".
  virtual std::string Caution() const { return {}; }
  // Are its keep matrices doubly stochastic (rows and columns sum to 1)?
  virtual bool doubly_stochastic() const { return false; }
  // Its own numbers at a site after Control (and Review), for those who look inside: at every site the same
  // names.
  virtual std::vector<Intermediate> Inside(int /*site*/, const T* /*p*/, const State<T>& /*s*/,
                                           const Coefs<T>& /*coefs*/) const {
    return {};
  }
  // Holds the gate inside the read of a site at given numbers, [slots, dim] for all tokens or
  // [tokens, slots, dim], instead of deciding it. False where the read can be replaced from outside.
  virtual bool HoldGate(int /*site*/, const std::vector<double>& /*gate*/) { return false; }

 protected:
  // Appends a parameter and returns the offset of its first number in the flat array.
  int64_t Declare(std::string name, std::vector<int64_t> shape, Init init, bool decays, std::string about) {
    parameters_.push_back({std::move(name), std::move(shape), std::move(init), decays, std::move(about)});
    const int64_t offset = next_offset_;
    next_offset_ += parameters_.back().size();
    return offset;
  }
  // Several that follow each other; the offset of the first.
  int64_t Declare(const std::vector<Parameter>& several) {
    const int64_t offset = next_offset_;
    for (const Parameter& p : several) Declare(p.name, p.shape, p.init, p.decays, p.about);
    return offset;
  }

 private:
  int sites_;
  int64_t dim_;
  std::vector<Parameter> parameters_;
  int64_t next_offset_ = 0;
};

// All mechanisms, the baseline first.
std::vector<std::string> MechanismNames();
// `NAME[:option=value,...]`, for example "attnres:block=4". Errors (exit 2): unknown name, malformed options.
ResidualSpec ParseResidual(const std::string& text);

// What there is to know about a mechanism beyond its options and parameters, in plain ASCII.
struct Description {
  const char* summary;     // one line
  const char* source;      // paper and equations
  const char* equations;   // lines
  const char* at_start;    // what a model is with the initial values
  const char* deviations;  // from the source; "" if there are none
};
const Description& DescriptionOf(const std::string& name);
// Options with their defaults for a model of this size.
std::vector<OptionDoc> OptionsOf(const std::string& name, const Size& size);

// Builds a mechanism. Errors (exit 2): unknown name or option (the nearest known is named), a value out of
// range. Instantiated for float, double and std::complex<double>.
template <class T>
std::unique_ptr<Mechanism<T>> MakeMechanism(const ResidualSpec& spec, const Size& size);
template <class T>
std::unique_ptr<Mechanism<T>> MakeMechanism(const ResidualSpec& spec, int sites, int64_t dim) {
  return MakeMechanism<T>(spec, Size{sites, dim, 0});
}
// The parameters' initial values as one flat array: every normal tensor from a stream of its own, seeded by
// (seed, prefix + name).
std::vector<double> InitialValues(const std::vector<Parameter>& parameters, const std::string& prefix,
                                  uint64_t seed);

}  // namespace strata

#endif  // STRATA_RESIDUAL_MECHANISM_H_
