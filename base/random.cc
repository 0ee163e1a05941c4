#include "base/random.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace strata {

uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

static uint64_t SplitMix(uint64_t& x) {
  uint64_t z = (x += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

Random::Random(uint64_t seed, uint64_t stream) {
  uint64_t x = stream;
  x = SplitMix(x) ^ seed;
  for (uint64_t& word : state_) word = SplitMix(x);
}

uint64_t Random::Next() {
  const uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

double Random::Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

uint64_t Random::Below(uint64_t bound) {
  const uint64_t reject = (0 - bound) % bound;  // 2^64 mod bound
  uint64_t x = Next();
  while (x < reject) x = Next();
  return x % bound;
}

double Random::Normal() {
  const double u = 1.0 - Uniform(), v = Uniform();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace strata
