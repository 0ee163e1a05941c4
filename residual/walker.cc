#include "residual/walker.h"

#include <algorithm>
#include <cassert>
#include <complex>
#include <string>

#include "base/error.h"
#include "base/parallel.h"

namespace strata {
namespace {

// What the rows of a group of tokens may take of a core's second cache.
constexpr int64_t kCacheBytes = 512 << 10;
constexpr int64_t kLeastRows = 16, kMostRows = 256;

// x is the one slot itself.
bool ReadsSlotItself(const Rule& rule) { return rule.read == Coef::kOne && rule.slots == 1; }
// The gradient of u is that of the one written slot.
bool AddsUpdate(const Rule& rule) {
  return rule.keep == Coef::kOne && rule.write == Coef::kOne && rule.open() == 1;
}
bool KeepsUpdate(const Rule& rule) { return rule.append || rule.reads_update; }

// Numbers per token.
struct CoefNumbers {
  CoefNumbers() = default;
  CoefNumbers(const Rule& rule, int64_t dim)
      : read(CoefSize(rule.read, rule.slots, dim)),
        keep(CoefSize(rule.keep, rule.open(), dim)),
        write(CoefSize(rule.write, rule.open(), dim)),
        saved(rule.saved) {}
  void Widen(const CoefNumbers& other) {
    read = std::max(read, other.read);
    keep = std::max(keep, other.keep);
    write = std::max(write, other.write);
    saved = std::max(saved, other.saved);
  }
  int64_t sum() const { return read + keep + write + saved; }
  int64_t read = 0, keep = 0, write = 0, saved = 0;
};

// Tokens whose rows (all slots, those written, u and x) fit the cache: a multiple of kLeastRows. 0: all.
template <class T>
int64_t GroupRows(const Mechanism<T>& mechanism) {
  if (mechanism.wide()) return 0;
  int64_t most = 1;
  for (int site = 0; site <= mechanism.sites(); ++site) {
    const Rule rule = mechanism.At(site);
    most = std::max<int64_t>(most, rule.slots + (rule.append ? 1 : rule.open()) + 2);
  }
  const int64_t rows = kCacheBytes / (most * mechanism.dim() * static_cast<int64_t>(sizeof(T)));
  return std::clamp(rows / kLeastRows * kLeastRows, kLeastRows, kMostRows);
}

// Groups that follow each other in one task of the backward pass and share an array of parameter gradients,
// so that adding these up costs little beside the rows.
int64_t SlabRows(int64_t group, int64_t tokens) {
  constexpr int64_t kMost = 256, kTasks = 16;
  const int64_t rows = std::clamp(tokens / kTasks, group, std::max(kMost, group));
  return rows / group * group;
}

}  // namespace

template <class T>
Walker<T>::Walker(const Mechanism<T>& mechanism, Mode mode)
    : mechanism_(mechanism), keeps_(mode == Mode::kTrain), rows_(GroupRows(mechanism)) {
  const size_t places = keeps_ ? static_cast<size_t>(mechanism.sites()) + 1 : 1;
  states_.resize(places);
  coefs_.resize(keeps_ ? places : 2);
  updates_.resize(places);
  places_ = PlacesOf(mechanism);
}

// Where each site adds gradients. Parameters are named sites.S.* and head.*, those of a site one after the
// other.
template <class T>
std::vector<typename Walker<T>::Places> Walker<T>::PlacesOf(const Mechanism<T>& mechanism) {
  std::vector<Places> places(static_cast<size_t>(mechanism.sites()) + 1);
  int64_t offset = 0;
  for (const Parameter& p : mechanism.Parameters()) {
    const bool of_head = p.name.rfind("head.", 0) == 0;
    Places& of_site = places[of_head ? places.size() - 1 : std::stoul(p.name.substr(6))];
    if (of_site.size() == 0) of_site.begin = offset;
    offset += p.size();
    of_site.end = offset;
  }
  if (mechanism.shares_parameters()) std::fill(places.begin(), places.end(), Places{0, offset});
  return places;
}

template <class T>
template <class F>
void Walker<T>::ForRows(F&& f) const {
  ParallelFor(tokens_, rows_ > 0 ? rows_ : std::max<int64_t>(1, tokens_), f);
}

// f(begin, end, dp) for groups of tokens; dp: where they add the gradients of the parameters at `places`.
template <class T>
template <class F>
void Walker<T>::ForSlabs(const Places& places, F&& f) {
  const int64_t slab = rows_ > 0 ? SlabRows(rows_, tokens_) : tokens_;
  if (tokens_ <= slab) {
    for (int64_t begin = 0; begin<tokens_; begin += rows_> 0 ? rows_ : tokens_) {
      f(begin, rows_ > 0 ? std::min(tokens_, begin + rows_) : tokens_, dp_);
    }
    return;
  }
  const int64_t slabs = (tokens_ + slab - 1) / slab, size = places.size();
  slabs_.Resize(slabs * size);
  ParallelFor(tokens_, slab, [&](int64_t first, int64_t last) {
    T* sums = slabs_.data() + first / slab * size;
    std::fill_n(sums, size, T(0));
    for (int64_t begin = first; begin < last; begin += rows_) {
      f(begin, std::min(last, begin + rows_), sums - places.begin);
    }
  });
  constexpr int64_t kPlaces = 1 << 12;
  ParallelFor(size, kPlaces, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < slabs; ++i) {
      const T* of_slab = slabs_.data() + i * size;
      for (int64_t j = begin; j < end; ++j) dp_[places.begin + j] += of_slab[j];
    }
  });
}

// Parameter gradients that a backward pass holds for its slabs.
template <class T>
int64_t Walker<T>::SlabNumbers(const Mechanism<T>& mechanism, int64_t tokens) {
  const int64_t group = GroupRows(mechanism);
  if (group == 0) return 0;
  const int64_t slab = SlabRows(group, tokens);
  if (tokens <= slab) return 0;
  int64_t most = 0;
  for (const Places& places : PlacesOf(mechanism)) most = std::max(most, places.size());
  return CheckedProduct((tokens + slab - 1) / slab, most, "gradients of slabs");
}

template <class T>
T* Walker<T>::Take() {
  if (used_ == pool_.size()) pool_.emplace_back();
  Buffer<T>& buffer = pool_[used_++];
  buffer.Resize(tokens_ * mechanism_.dim());
  return buffer.data();
}

// ---- forward

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
  // Training never writes in place, so slots that start equal may be the same copy.
  const auto shares = [&](size_t k) { return keeps_ && k > 0 && slots[k] == slots[0]; };
  for (size_t k = 0; k < slots.size(); ++k) state.slots[k] = shares(k) ? state.slots[0] : Take();
  Prepare();
  ForRows([&](int64_t begin, int64_t end) {
    const int64_t dim = mechanism_.dim();
    for (size_t k = 0; k < slots.size(); ++k) {
      if (!shares(k)) std::copy(slots[k] + begin * dim, slots[k] + end * dim, state.slots[k] + begin * dim);
    }
    Decide(begin, end);
  });
  return x_of_site_;
}

template <class T>
void Walker<T>::Prepare() {
  const Rule rule = mechanism_.At(site_);
  const State<T>& state = states_[Index(site_)];
  assert(static_cast<int>(state.slots.size()) == rule.slots);
  CoefsOf(site_).Resize(rule, mechanism_.dim(), tokens_);
  const int64_t numbers = tokens_ * mechanism_.dim();
  if (site_ < mechanism_.sites()) {
    const bool kept = rule.append || (keeps_ && rule.reads_update);
    updates_[Index(site_)] = kept ? Take() : (u_.Resize(numbers), u_.data());
  }
  if (ReadsSlotItself(rule)) {
    x_of_site_ = state.slots[0];
  } else {
    x_of_site_ = keeps_ ? Take() : (x_.Resize(numbers), x_.data());
  }
}

template <class T>
void Walker<T>::Decide(int64_t begin, int64_t end) {
  const Rule rule = mechanism_.At(site_);
  const int64_t dim = mechanism_.dim();
  const State<T> state = states_[Index(site_)].Rows(begin, end, dim);
  Coefs<T> coefs = CoefsOf(site_).Rows(begin, end);
  mechanism_.Control(site_, p_, state, &coefs);
  if (ReadsSlotItself(rule)) return;
  Read(Dims(end - begin, rule.slots), rule.read, coefs.read.data(), state.slots.data(),
       x_of_site_ + begin * dim);
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
  PrepareWrite(rule);
  const Seam seam{rule, states_[Index(site_)], &CoefsOf(site_), updates_[Index(site_)], site_};
  ++site_;
  Prepare();
  ForRows([&](int64_t begin, int64_t end) {
    WriteRows(seam, begin, end);
    Decide(begin, end);
  });
  return x_of_site_;
}

template <class T>
void Walker<T>::PrepareWrite(const Rule& rule) {
  const State<T>& state = states_[Index(site_)];
  State<T>& next = states_[Index(site_ + 1)];
  if (keeps_) {
    next.tokens = tokens_;
    next.slots.assign(state.slots.begin(), state.slots.end());
  }
  if (rule.append) {
    next.slots.push_back(updates_[Index(site_)]);
  } else if (keeps_) {
    for (auto slot = next.slots.begin() + rule.closed; slot != next.slots.end(); ++slot) *slot = Take();
  }
}

template <class T>
void Walker<T>::WriteRows(const Seam& seam, int64_t begin, int64_t end) {
  const Rule& rule = seam.rule;
  const int64_t dim = mechanism_.dim();
  const State<T> state = seam.state.Rows(begin, end, dim);
  Coefs<T> coefs = seam.coefs->Rows(begin, end);
  const T* u = seam.u + begin * dim;
  if (rule.sees_update) mechanism_.Review(seam.site, p_, state, u, &coefs);
  if (rule.append) return;
  const State<T> next = states_[Index(site_)].Rows(begin, end, dim);
  Write(Dims(end - begin, rule.open()), rule.keep, coefs.keep.data(), rule.write, coefs.write.data(),
        state.slots.data() + rule.closed, u, next.slots.data() + rule.closed);
}

// ---- backward

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
  }
  dcoefs(back_).Resize(rule, mechanism_.dim(), tokens_);
  return Back(dx);
}

template <class T>
const T* Walker<T>::Back(const T* dx) {
  if constexpr (std::is_floating_point_v<T>) {
    const int before = back_ - 1;
    const Rule rule = before >= 0 ? mechanism_.At(before) : Rule{};
    if (before >= 0) dcoefs(before).Resize(rule, mechanism_.dim(), tokens_);
    T* du = UpdateGradient(rule);
    Places places = places_[static_cast<size_t>(back_)];
    if (before >= 0 && rule.sees_update) {  // two sites add to their parameters
      const Places& more = places_[static_cast<size_t>(before)];
      places = {std::min(places.begin, more.begin), std::max(places.end, more.end)};
    }
    ForSlabs(places, [&](int64_t begin, int64_t end, T* dp) {
      DecideVjp(dx, begin, end, dp);
      if (before >= 0) {
        WriteVjpRows(rule, before, du, begin, end, dp);
      } else if (ds_.slots.size() > 1) {
        const State<T> ds = ds_.Rows(begin, end, mechanism_.dim());
        Read(Dims(end - begin, static_cast<int>(ds.slots.size())), Coef::kOne, static_cast<const T*>(nullptr),
             ds.slots.data(), du + begin * mechanism_.dim());
      }
    });
    if (before >= 0 && rule.append) ds_.slots.pop_back();
    back_ = std::max(before, 0);
    return du;
  } else {
    Fail("walker: expected float or double for a backward pass, got a complex type");
  }
}

template <class T>
T* Walker<T>::UpdateGradient(const Rule& rule) {
  if (back_ == 0) {
    if (ds_.slots.size() == 1) return ds_.slots[0];
  } else if (rule.append) {
    return ds_.slots.back();
  } else if (AddsUpdate(rule)) {
    return ds_.slots[static_cast<size_t>(rule.closed)];
  }
  du_.Resize(tokens_ * mechanism_.dim());
  return du_.data();
}

template <class T>
void Walker<T>::DecideVjp(const T* dx, int64_t begin, int64_t end, T* dp) {
  if constexpr (std::is_floating_point_v<T>) {
    const Rule rule = mechanism_.At(back_);
    const int64_t dim = mechanism_.dim();
    const State<T> state = states_[Index(back_)].Rows(begin, end, dim), ds = ds_.Rows(begin, end, dim);
    const Coefs<T> coefs = CoefsOf(back_).Rows(begin, end);
    Coefs<T> dcoefs_rows = dcoefs(back_).Rows(begin, end);
    if (back_ == mechanism_.sites()) {
      for (T* slot : ds.slots) std::fill_n(slot, (end - begin) * dim, T(0));
    }
    dcoefs_rows.read.Fill(T(0));
    ReadVjp(Dims(end - begin, rule.slots), rule.read, coefs.read.data(), state.slots.data(), dx + begin * dim,
            ds.slots.data(), dcoefs_rows.read.data());
    mechanism_.ControlVjp(back_, p_, state, coefs, &dcoefs_rows, ds, dp);
  }
}

template <class T>
void Walker<T>::WriteVjpRows(const Rule& rule, int site, T* du, int64_t begin, int64_t end, T* dp) {
  if constexpr (std::is_floating_point_v<T>) {
    if (rule.append || AddsUpdate(rule)) return;
    const int64_t dim = mechanism_.dim();
    const State<T> state = states_[Index(site)].Rows(begin, end, dim), ds = ds_.Rows(begin, end, dim);
    const Coefs<T> coefs = CoefsOf(site).Rows(begin, end);
    Coefs<T> dcoefs_rows = dcoefs(site).Rows(begin, end);
    dcoefs_rows.keep.Fill(T(0));
    dcoefs_rows.write.Fill(T(0));
    const T* u = updates_[Index(site)] + begin * dim;
    WriteVjp(Dims(end - begin, rule.open()), rule.keep, coefs.keep.data(), rule.write, coefs.write.data(),
             state.slots.data() + rule.closed, u, ds.slots.data() + rule.closed, du + begin * dim,
             dcoefs_rows.keep.data(), dcoefs_rows.write.data());
    if (rule.sees_update)
      mechanism_.ReviewVjp(site, p_, state, u, coefs, &dcoefs_rows, ds, du + begin * dim, dp);
  }
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
std::vector<Intermediate> Walker<T>::Inside(int site) const {
  std::vector<Intermediate> all;
  const int64_t group = rows_ > 0 ? rows_ : std::max<int64_t>(1, tokens_);
  for (int64_t begin = 0; begin < std::max<int64_t>(1, tokens_); begin += group) {
    const int64_t end = std::min(tokens_, begin + group);
    const std::vector<Intermediate> part = mechanism_.Inside(
        site, p_, state(site).Rows(begin, end, mechanism_.dim()), CoefsOf(site).Rows(begin, end));
    if (begin == 0) {
      all = part;
      continue;
    }
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].values.insert(all[i].values.end(), part[i].values.begin(), part[i].values.end());
    }
  }
  return all;
}

// ---- memory

template <class T>
int64_t Walker<T>::bytes() const {
  int64_t sum = x_.bytes() + u_.bytes() + du_.bytes() + slabs_.bytes();
  for (const Buffer<T>& buffer : pool_) sum += buffer.bytes();
  for (const Buffer<T>& buffer : gradients_) sum += buffer.bytes();
  for (const CoefBuffers<T>& coefs : coefs_) sum += coefs.bytes();
  for (const CoefBuffers<T>& dcoefs : dcoefs_) sum += dcoefs.bytes();
  return sum;
}

template <class T>
int64_t Walker<T>::TrainingBytes(const Mechanism<T>& mechanism, int64_t tokens) {
  const int64_t dim = mechanism.dim();
  int64_t rows = 1, numbers = 0;  // [tokens, dim] buffers (the first: e) and further numbers, per token
  bool shares_update = false, owns_du = mechanism.open_slots() > 1;
  CoefNumbers most[2];
  for (int site = 0; site <= mechanism.sites(); ++site) {
    const Rule rule = mechanism.At(site);
    const CoefNumbers coefs(rule, dim);
    numbers += coefs.sum();
    most[site % 2].Widen(coefs);
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
  numbers += most[0].sum() + most[1].sum() + rows * dim;
  const int64_t of_tokens = CheckedProduct(numbers, tokens, "residual state");
  return CheckedProduct(of_tokens + SlabNumbers(mechanism, tokens), sizeof(T), "residual state in bytes");
}

template class Walker<float>;
template class Walker<double>;
template class Walker<std::complex<double>>;

}  // namespace strata
