#ifndef STRATA_BASE_RANDOM_H_
#define STRATA_BASE_RANDOM_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace strata {

// 64-bit FNV-1a hash of a name: gives each named thing a random stream of its own.
uint64_t HashName(std::string_view name);

// xoshiro256++ (Blackman and Vigna), seeded through splitmix64. Equal (seed, stream) give equal numbers on
// every machine; the state can be stored and restored, so a resumed run draws what an uninterrupted one
// would.
class Random {
 public:
  using State = std::array<uint64_t, 4>;
  explicit Random(uint64_t seed, uint64_t stream = 0);
  uint64_t Next();
  double Uniform();                // [0, 1)
  uint64_t Below(uint64_t bound);  // [0, bound), unbiased; bound >= 1
  double Normal();                 // mean 0, deviation 1; draws two numbers, keeps no spare
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  State state_;
};

}  // namespace strata

#endif  // STRATA_BASE_RANDOM_H_
