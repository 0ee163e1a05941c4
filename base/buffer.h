#ifndef STRATA_BASE_BUFFER_H_
#define STRATA_BASE_BUFFER_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "base/error.h"

namespace strata {

// An owned, 64-byte aligned array of trivially copyable T. `Resize` keeps no contents and never shrinks the
// allocation, so a buffer that is reused each step is allocated once. New memory is zero.
template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  explicit Buffer(int64_t size) { Resize(size); }
  Buffer(Buffer&&) noexcept = default;
  Buffer& operator=(Buffer&&) noexcept = default;

  void Resize(int64_t size) {
    if (size > capacity_) {
      const auto bytes = static_cast<size_t>(CheckedProduct(size, sizeof(T), "buffer bytes"));
      const size_t rounded = (bytes + 63) / 64 * 64;
      void* memory = std::aligned_alloc(64, rounded);
      if (memory == nullptr) Fail("memory: expected {} free bytes, got none", bytes);
      std::fill_n(static_cast<char*>(memory), rounded, char{0});
      data_.reset(static_cast<T*>(memory));
      capacity_ = size;
    }
    size_ = size;
  }
  void Fill(T value) { std::fill_n(data(), size_, value); }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  int64_t bytes() const { return capacity_ * static_cast<int64_t>(sizeof(T)); }
  T& operator[](int64_t i) { return data_.get()[i]; }
  const T& operator[](int64_t i) const { return data_.get()[i]; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0, capacity_ = 0;
};

}  // namespace strata

#endif  // STRATA_BASE_BUFFER_H_
