#include "residual/walker.h"

#include <algorithm>
#include <cassert>
#include <complex>

#include "base/error.h"
#include "base/parallel.h"

namespace strata {
namespace {

constexpr int64_t kChunk = 1 << 14;  // numbers

template <class T>
void Copy(int64_t size, const T* from, T* to) {
  ParallelFor(size, kChunk, [&](int64_t a, int64_t b) { std::copy(from + a, from + b, to + a); });
}

template <class T>
void Zero(int64_t size, T* to) {
  ParallelFor(size, kChunk, [&](int64_t a, int64_t b) { std::fill(to + a, to + b, T(0)); });
}

// x is the one slot itself.
bool ReadsSlotItself(const Rule& rule) { return rule.read == Coef::kOne && rule.slots == 1; }
// The gradient of u is that of the one written slot.
bool AddsUpdate(const Rule& rule) {
  return rule.keep == Coef::kOne && rule.write == Coef::kOne && rule.open() == 1;
}
bool KeepsUpdate(const Rule& rule) { return rule.append || rule.reads_update; }

// Numbers per token.
struct CoefNumbers {
  CoefNumbers(const Rule& rule, int64_t dim)
      : read(CoefSize(rule.read, rule.slots, dim)),
        keep(CoefSize(rule.keep, rule.open(), dim)),
        write(CoefSize(rule.write, rule.open(), dim)),
        saved(rule.saved) {}
  int64_t read, keep, write, saved;
};

}  // namespace

template <class T>
Walker<T>::Walker(const Mechanism<T>& mechanism, Mode mode)
    : mechanism_(mechanism), keeps_(mode == Mode::kTrain) {
  const size_t places = keeps_ ? static_cast<size_t>(mechanism.sites()) + 1 : 1;
  states_.resize(places);
  coefs_.resize(places);
  updates_.resize(places);
}

template <class T>
T* Walker<T>::Take() {
  if (used_ == pool_.size()) pool_.emplace_back();
  Buffer<T>& buffer = pool_[used_++];
  buffer.Resize(tokens_ * mechanism_.dim());
  return buffer.data();
}

template <class T>
void Walker<T>::SizeCoefs(const Rule& rule, Coefs<T>* coefs) const {
  const CoefNumbers numbers(rule, mechanism_.dim());
  coefs->read.Resize(tokens_ * numbers.read);
  coefs->keep.Resize(tokens_ * numbers.keep);
  coefs->write.Resize(tokens_ * numbers.write);
  coefs->saved.Resize(tokens_ * numbers.saved);
}

template <class T>
const T* Walker<T>::Begin(const T* p, const T* e, int64_t tokens) {
  return Begin(p, std::vector<const T*>(static_cast<size_t>(mechanism_.open_slots()), e), tokens);
}

template <class T>
const T* Walker<T>::Begin(const T* p, const std::vector<const T*>& slots, int64_t tokens) {
  assert(static_cast<int>(slots.size()) == mechanism_.open_slots());
  p_ = p;
  tokens_ = tokens;
  site_ = 0;
  used_ = 0;
  State<T>& state = states_[0];
  state.tokens = tokens;
  state.slots.resize(slots.size());
  for (size_t k = 0; k < slots.size(); ++k) {
    // Training never writes in place, so slots that start equal may be the same copy.
    if (keeps_ && k > 0 && slots[k] == slots[0]) {
      state.slots[k] = state.slots[0];
    } else {
      Copy(tokens * mechanism_.dim(), slots[k], state.slots[k] = Take());
    }
  }
  return Arrive();
}

template <class T>
const T* Walker<T>::Arrive() {
  const Rule rule = mechanism_.At(site_);
  const State<T>& state = states_[Index(site_)];
  Coefs<T>& coefs = coefs_[Index(site_)];
  assert(static_cast<int>(state.slots.size()) == rule.slots);
  SizeCoefs(rule, &coefs);
  mechanism_.Control(site_, p_, state, &coefs);
  if (site_ < mechanism_.sites()) {
    T*& u = updates_[Index(site_)];
    if (rule.append || (keeps_ && rule.reads_update)) {
      u = Take();
    } else {
      u_.Resize(tokens_ * mechanism_.dim());
      u = u_.data();
    }
  }
  if (ReadsSlotItself(rule)) return state.slots[0];
  T* x = keeps_ ? Take() : (x_.Resize(tokens_ * mechanism_.dim()), x_.data());
  Read(Dims(rule.slots), rule.read, coefs.read.data(), state.slots.data(), x);
  return x;
}

template <class T>
T* Walker<T>::update() {
  assert(site_ < mechanism_.sites());
  return updates_[Index(site_)];
}

template <class T>
const T* Walker<T>::Next() {
  assert(site_ < mechanism_.sites());
  const Rule rule = mechanism_.At(site_);
  const State<T>& state = states_[Index(site_)];
  Coefs<T>& coefs = coefs_[Index(site_)];
  T* u = updates_[Index(site_)];
  if (rule.sees_update) mechanism_.Review(site_, p_, state, u, &coefs);
  State<T>& next = states_[Index(site_ + 1)];
  if (keeps_) {
    next.tokens = tokens_;
    next.slots.assign(state.slots.begin(), state.slots.end());
  }
  if (rule.append) {
    next.slots.push_back(u);
  } else {
    if (keeps_) {
      for (auto slot = next.slots.begin() + rule.closed; slot != next.slots.end(); ++slot) *slot = Take();
    }
    Write(Dims(rule.open()), rule.keep, coefs.keep.data(), rule.write, coefs.write.data(),
          state.slots.data() + rule.closed, u, next.slots.data() + rule.closed);
  }
  ++site_;
  return Arrive();
}

template <class T>
const T* Walker<T>::BeginBack(const T* dx, T* dp) {
  assert(keeps_ && site_ == mechanism_.sites());
  dp_ = dp;
  back_ = mechanism_.sites();
  const Rule rule = mechanism_.At(back_);
  const auto slots = static_cast<size_t>(rule.slots);
  if (gradients_.size() < slots) gradients_.resize(slots);
  ds_.tokens = tokens_;
  ds_.slots.resize(slots);
  for (size_t k = 0; k < slots; ++k) {
    gradients_[k].Resize(tokens_ * mechanism_.dim());
    ds_.slots[k] = gradients_[k].data();
    Zero(gradients_[k].size(), gradients_[k].data());
  }
  SizeCoefs(rule, &dcoefs_);
  dcoefs_.read.Fill(T(0));
  Retreat(dx);
  return Undo();
}

template <class T>
const T* Walker<T>::Back(const T* dx) {
  Retreat(dx);
  return Undo();
}

template <class T>
void Walker<T>::Retreat(const T* dx) {
  if constexpr (std::is_floating_point_v<T>) {
    const Rule rule = mechanism_.At(back_);
    const State<T>& state = states_[Index(back_)];
    const Coefs<T>& coefs = coefs_[Index(back_)];
    ReadVjp(Dims(rule.slots), rule.read, coefs.read.data(), state.slots.data(), dx, ds_.slots.data(),
            dcoefs_.read.data());
    mechanism_.ControlVjp(back_, p_, state, coefs, &dcoefs_, ds_, dp_);
  }
}

template <class T>
const T* Walker<T>::Undo() {
  if constexpr (std::is_floating_point_v<T>) {
    if (back_ == 0) {
      if (ds_.slots.size() == 1) return ds_.slots[0];
      du_.Resize(tokens_ * mechanism_.dim());
      Read(Dims(static_cast<int>(ds_.slots.size())), Coef::kOne, static_cast<const T*>(nullptr),
           ds_.slots.data(), du_.data());
      return du_.data();
    }
    --back_;
    const Rule rule = mechanism_.At(back_);
    const State<T>& state = states_[Index(back_)];
    const Coefs<T>& coefs = coefs_[Index(back_)];
    SizeCoefs(rule, &dcoefs_);
    dcoefs_.read.Fill(T(0));
    dcoefs_.keep.Fill(T(0));
    dcoefs_.write.Fill(T(0));
    if (rule.append) {
      const T* du = ds_.slots.back();
      ds_.slots.pop_back();
      return du;
    }
    if (AddsUpdate(rule)) return ds_.slots[static_cast<size_t>(rule.closed)];
    du_.Resize(tokens_ * mechanism_.dim());
    const T* u = updates_[Index(back_)];
    WriteVjp(Dims(rule.open()), rule.keep, coefs.keep.data(), rule.write, coefs.write.data(),
             state.slots.data() + rule.closed, u, ds_.slots.data() + rule.closed, du_.data(),
             dcoefs_.keep.data(), dcoefs_.write.data());
    if (rule.sees_update) {
      mechanism_.ReviewVjp(back_, p_, state, u, coefs, &dcoefs_, ds_, du_.data(), dp_);
    }
    return du_.data();
  } else {
    Fail("walker: expected float or double for a backward pass, got a complex type");
  }
}

template <class T>
const Coefs<T>& Walker<T>::coefs(int site) const {
  return coefs_[Index(site)];
}

template <class T>
const State<T>& Walker<T>::state(int site) const {
  return states_[Index(site)];
}

template <class T>
const T* Walker<T>::u(int site) const {
  return keeps_ && KeepsUpdate(mechanism_.At(site)) ? updates_[Index(site)] : nullptr;
}

template <class T>
int64_t Walker<T>::bytes() const {
  int64_t sum = x_.bytes() + u_.bytes() + du_.bytes();
  for (const Buffer<T>& buffer : pool_) sum += buffer.bytes();
  for (const Buffer<T>& buffer : gradients_) sum += buffer.bytes();
  const auto add = [&](const Coefs<T>& c) {
    sum += c.read.bytes() + c.keep.bytes() + c.write.bytes() + c.saved.bytes();
  };
  for (const Coefs<T>& coefs : coefs_) add(coefs);
  add(dcoefs_);
  return sum;
}

template <class T>
int64_t Walker<T>::TrainingBytes(const Mechanism<T>& mechanism, int64_t tokens) {
  const int64_t dim = mechanism.dim();
  int64_t rows = 1, numbers = 0;  // [tokens, dim] buffers (the first: e) and further numbers, per token
  bool shares_update = false, owns_du = mechanism.open_slots() > 1;
  CoefNumbers most(Rule{}, dim);
  for (int site = 0; site <= mechanism.sites(); ++site) {
    const Rule rule = mechanism.At(site);
    const CoefNumbers coefs(rule, dim);
    numbers += coefs.read + coefs.keep + coefs.write + coefs.saved;
    most.read = std::max(most.read, coefs.read);
    most.keep = std::max(most.keep, coefs.keep);
    most.write = std::max(most.write, coefs.write);
    most.saved = std::max(most.saved, coefs.saved);
    if (!ReadsSlotItself(rule)) ++rows;
    if (site == mechanism.sites()) {
      rows += rule.slots;  // gradients; slots never disappear
      break;
    }
    KeepsUpdate(rule) ? void(++rows) : void(shares_update = true);
    if (rule.append) continue;
    rows += rule.open();
    if (!AddsUpdate(rule)) owns_du = true;
  }
  rows += (shares_update ? 1 : 0) + (owns_du ? 1 : 0);
  numbers += most.read + most.keep + most.write + most.saved + rows * dim;
  return CheckedProduct(CheckedProduct(numbers, tokens, "residual state"), sizeof(T),
                        "residual state in bytes");
}

template class Walker<float>;
template class Walker<double>;
template class Walker<std::complex<double>>;

}  // namespace strata
