#ifndef STRATA_OPS_BFLOAT16_H_
#define STRATA_OPS_BFLOAT16_H_

#include <bit>
#include <cstdint>

namespace strata {

// The upper half of an f32, rounded to nearest even. Storage only: arithmetic is in f32.
struct BFloat16 {
  uint16_t bits = 0;
};

inline float ToFloat(float x) { return x; }
inline float ToFloat(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

template <class E>
E FromFloat(float x);
template <>
inline float FromFloat<float>(float x) {
  return x;
}
template <>
inline BFloat16 FromFloat<BFloat16>(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace strata

#endif  // STRATA_OPS_BFLOAT16_H_
