#ifndef STRATA_RESIDUAL_STATE_H_
#define STRATA_RESIDUAL_STATE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "ops/mix.h"

namespace strata {

// What the law looks like at one site: known from (mechanism, site) before any data.
struct Rule {
  int slots = 1;        // slots that the read sees
  int closed = 0;       // slots [0, closed) are never written again; keep and write span [closed, slots).
                        // At the head: closed == slots
  bool append = false;  // the write adds u as a new slot (keep and write are then kOne)
  Coef read = Coef::kOne;
  Coef keep = Coef::kOne;
  Coef write = Coef::kOne;
  bool sees_update = false;   // the write's coefficients are decided after the sublayer, by Review
  bool reads_update = false;  // the backward pass needs the values of u (so the walker keeps them)
  bool normed = false;        // the read is normalised: its reader has no norm of its own
  int64_t saved = 0;          // numbers per token that Control and Review leave in coefs.saved
  int open() const { return slots - closed; }
};

// Slots as pointers, each [tokens, dim]. Owns nothing; invalid after the next Write.
template <class T>
struct State {
  int64_t tokens = 0;
  std::vector<T*> slots;

  State Rows(int64_t begin, int64_t end, int64_t dim) const {
    State rows{end - begin, slots};
    for (T*& slot : rows.slots) slot += begin * dim;
    return rows;
  }
};

// An array that belongs to another.
template <class T>
class Slice {
 public:
  Slice() = default;
  Slice(T* data, int64_t size) : data_(data), size_(size) {}
  void Fill(T value) { std::fill_n(data_, size_, value); }
  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
};

// Coefficients of some tokens at one site, or their gradients; layouts as in ops/mix.h. `saved`
// [tokens, rule.saved] is the mechanism's own: what Control computes and ControlVjp wants again; beside
// gradients it is scratch.
template <class T>
struct Coefs {
  Slice<T> read, keep, write, saved;
};

// The memory of the coefficients of all tokens at one site.
template <class T>
class CoefBuffers {
 public:
  void Resize(const Rule& rule, int64_t dim, int64_t tokens) {
    tokens_ = tokens;
    read_.Resize(tokens * CoefSize(rule.read, rule.slots, dim));
    keep_.Resize(tokens * CoefSize(rule.keep, rule.open(), dim));
    write_.Resize(tokens * CoefSize(rule.write, rule.open(), dim));
    saved_.Resize(tokens * rule.saved);
  }
  Coefs<T> Rows(int64_t begin, int64_t end) {
    return {Part(&read_, begin, end), Part(&keep_, begin, end), Part(&write_, begin, end),
            Part(&saved_, begin, end)};
  }
  Coefs<T> All() { return Rows(0, tokens_); }
  int64_t bytes() const { return read_.bytes() + keep_.bytes() + write_.bytes() + saved_.bytes(); }

 private:
  Slice<T> Part(Buffer<T>* buffer, int64_t begin, int64_t end) const {
    const int64_t size = tokens_ == 0 ? 0 : buffer->size() / tokens_;
    return {buffer->data() + begin * size, (end - begin) * size};
  }

  int64_t tokens_ = 0;
  Buffer<T> read_, keep_, write_, saved_;
};

}  // namespace strata

#endif  // STRATA_RESIDUAL_STATE_H_
