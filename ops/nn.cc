#include "ops/nn.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "ops/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/nn.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata {
namespace HWY_NAMESPACE {

// 1 / (1 + exp(-z)); exp is clamped so that it stays finite.
template <class D>
HWY_INLINE hn::Vec<D> Sigmoid(D d, hn::Vec<D> z) {
  const auto one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(z), hn::Set(d, 88.0f)))));
}

template <class E>
void RmsNormRow(int64_t dim, const float* x, const float* gain, double eps, E* y, float* rstd) {
  const float sq = SumLanes(dim, [&](auto d, int64_t i) {
    const auto v = hn::LoadU(d, x + i);
    return hn::Mul(v, v);
  });
  const float r =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(sq) / static_cast<double>(dim) + eps));
  *rstd = r;
  ForLanes(dim, [&](auto d, int64_t i) {
    StoreF(d, hn::Mul(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, r)), hn::LoadU(d, gain + i)), y + i);
  });
}
void RmsNormRowF32(int64_t dim, const float* x, const float* gain, double eps, float* y, float* rstd) {
  RmsNormRow(dim, x, gain, eps, y, rstd);
}
void RmsNormRowBf16(int64_t dim, const float* x, const float* gain, double eps, BFloat16* y, float* rstd) {
  RmsNormRow(dim, x, gain, eps, y, rstd);
}

// With n = x r:  dx = r (q - n mean(q n)),  q = dy gain;  dgain += dy n.
void RmsNormRowVjp(int64_t dim, const float* x, const float* gain, float r, const float* dy, float* dx,
                   float* dgain) {
  const float dot = SumLanes(dim, [&](auto d, int64_t i) {
    return hn::Mul(hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, gain + i)), hn::LoadU(d, x + i));
  });
  const float mean = dot * r * r / static_cast<float>(dim);
  ForLanes(dim, [&](auto d, int64_t i) {
    const auto v = hn::LoadU(d, x + i), g = hn::LoadU(d, dy + i), rstd = hn::Set(d, r);
    const auto q = hn::Mul(g, hn::LoadU(d, gain + i));
    hn::StoreU(hn::MulAdd(hn::Mul(v, rstd), g, hn::LoadU(d, dgain + i)), d, dgain + i);
    hn::StoreU(hn::Mul(rstd, hn::NegMulAdd(v, hn::Set(d, mean), q)), d, dx + i);
  });
}

constexpr float kGeluScale = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float kGeluCubic = 0.044715f;

template <class E>
void GeluRow(int64_t size, const E* a, E* y) {
  ForLanes(size, [&](auto d, int64_t i) {
    const auto v = LoadF(d, a + i);
    const auto inner = hn::MulAdd(hn::Mul(hn::Mul(v, v), hn::Set(d, kGeluCubic)), v, v);
    StoreF(d, hn::Mul(v, Sigmoid(d, hn::Mul(inner, hn::Set(d, kGeluScale)))), y + i);
  });
}
void GeluF32(int64_t size, const float* a, float* y) { GeluRow(size, a, y); }
void GeluBf16(int64_t size, const BFloat16* a, BFloat16* y) { GeluRow(size, a, y); }

// y = a s(z):  y' = s + a s (1 - s) z'.
template <class E>
void GeluVjpRow(int64_t size, const E* a, const E* dy, E* da) {
  ForLanes(size, [&](auto d, int64_t i) {
    const auto v = LoadF(d, a + i), one = hn::Set(d, 1.0f), scale = hn::Set(d, kGeluScale);
    const auto square = hn::Mul(hn::Mul(v, v), hn::Set(d, kGeluCubic));
    const auto s = Sigmoid(d, hn::Mul(hn::MulAdd(square, v, v), scale));
    const auto slope = hn::Mul(scale, hn::MulAdd(square, hn::Set(d, 3.0f), one));
    const auto change = hn::Mul(hn::Mul(v, hn::Mul(s, hn::Sub(one, s))), slope);
    StoreF(d, hn::Mul(LoadF(d, dy + i), hn::Add(s, change)), da + i);
  });
}
void GeluVjpF32(int64_t size, const float* a, const float* dy, float* da) { GeluVjpRow(size, a, dy, da); }
void GeluVjpBf16(int64_t size, const BFloat16* a, const BFloat16* dy, BFloat16* da) {
  GeluVjpRow(size, a, dy, da);
}

template <class E>
void SwiGluRow(int64_t width, const E* a, E* y) {
  ForLanes(width, [&](auto d, int64_t i) {
    const auto g = LoadF(d, a + i);
    StoreF(d, hn::Mul(hn::Mul(g, Sigmoid(d, g)), LoadF(d, a + width + i)), y + i);
  });
}
void SwiGluF32(int64_t width, const float* a, float* y) { SwiGluRow(width, a, y); }
void SwiGluBf16(int64_t width, const BFloat16* a, BFloat16* y) { SwiGluRow(width, a, y); }

template <class E>
void SwiGluVjpRow(int64_t width, const E* a, const E* dy, E* da) {
  ForLanes(width, [&](auto d, int64_t i) {
    const auto g = LoadF(d, a + i), up = LoadF(d, dy + i), one = hn::Set(d, 1.0f);
    const auto s = Sigmoid(d, g);
    const auto slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));
    StoreF(d, hn::Mul(hn::Mul(up, LoadF(d, a + width + i)), slope), da + i);
    StoreF(d, hn::Mul(up, hn::Mul(g, s)), da + width + i);
  });
}
void SwiGluVjpF32(int64_t width, const float* a, const float* dy, float* da) {
  SwiGluVjpRow(width, a, dy, da);
}
void SwiGluVjpBf16(int64_t width, const BFloat16* a, const BFloat16* dy, BFloat16* da) {
  SwiGluVjpRow(width, a, dy, da);
}

// Turns the pairs (x[i], x[i + half]) of one head by the angles whose cosines and sines are given; sign -1:
// back.
template <class E>
void RopeHead(int64_t half, const float* cosine, const float* sine, float sign, E* x) {
  ForLanes(half, [&](auto d, int64_t i) {
    const auto a = LoadF(d, x + i), b = LoadF(d, x + half + i);
    const auto c = hn::LoadU(d, cosine + i), s = hn::Mul(hn::Set(d, sign), hn::LoadU(d, sine + i));
    StoreF(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), x + i);
    StoreF(d, hn::MulAdd(a, s, hn::Mul(b, c)), x + half + i);
  });
}
void RopeF32(int64_t half, const float* cosine, const float* sine, float sign, float* x) {
  RopeHead(half, cosine, sine, sign, x);
}
void RopeBf16(int64_t half, const float* cosine, const float* sine, float sign, BFloat16* x) {
  RopeHead(half, cosine, sine, sign, x);
}

void ConvertBf16(int64_t size, const float* x, BFloat16* y) {
  ForLanes(size, [&](auto d, int64_t i) { StoreF(d, hn::LoadU(d, x + i), y + i); });
}
void WidenBf16(int64_t size, const BFloat16* x, float* y) {
  ForLanes(size, [&](auto d, int64_t i) { hn::StoreU(LoadF(d, x + i), d, y + i); });
}

float SumOfSquaresRow(int64_t size, const float* x) {
  return SumLanes(size, [&](auto d, int64_t i) {
    const auto v = hn::LoadU(d, x + i);
    return hn::Mul(v, v);
  });
}

void AddRow(int64_t size, const float* x, float* y) {
  ForLanes(size, [&](auto d, int64_t i) {
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  });
}

template <class E>
float DotRow(int64_t size, const E* a, const E* b) {
  return SumLanes(size, [&](auto d, int64_t i) { return hn::Mul(LoadF(d, a + i), LoadF(d, b + i)); });
}
float DotF32(int64_t size, const float* a, const float* b) { return DotRow(size, a, b); }
float DotBf16(int64_t size, const BFloat16* a, const BFloat16* b) { return DotRow(size, a, b); }

}  // namespace HWY_NAMESPACE
}  // namespace strata
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {

HWY_EXPORT(RmsNormRowF32);
HWY_EXPORT(RmsNormRowBf16);
HWY_EXPORT(RmsNormRowVjp);
HWY_EXPORT(GeluF32);
HWY_EXPORT(GeluBf16);
HWY_EXPORT(GeluVjpF32);
HWY_EXPORT(GeluVjpBf16);
HWY_EXPORT(SwiGluF32);
HWY_EXPORT(SwiGluBf16);
HWY_EXPORT(SwiGluVjpF32);
HWY_EXPORT(SwiGluVjpBf16);
HWY_EXPORT(RopeF32);
HWY_EXPORT(RopeBf16);
HWY_EXPORT(ConvertBf16);
HWY_EXPORT(WidenBf16);
HWY_EXPORT(SumOfSquaresRow);
HWY_EXPORT(AddRow);
HWY_EXPORT(DotF32);
HWY_EXPORT(DotBf16);

constexpr int64_t kRows = 32;        // rows per chunk
constexpr int64_t kNumbers = 16384;  // numbers per chunk of an elementwise op

template <class E>
void RmsNorm(int64_t rows, int64_t dim, const float* x, const float* gain, double eps, E* y, float* rstd) {
  const auto kernel = STRATA_KERNEL(E, RmsNormRow);
  ParallelFor(rows, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) kernel(dim, x + r * dim, gain, eps, y + r * dim, rstd + r);
  });
}

void RmsNormVjp(int64_t rows, int64_t dim, const float* x, const float* gain, const float* rstd,
                const float* dy, float* dx, float* dgain) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(RmsNormRowVjp);
  constexpr int64_t kChunk = 4 * kRows;
  const int64_t chunks = (rows + kChunk - 1) / kChunk;
  std::vector<float> partial(static_cast<size_t>(chunks * dim), 0.0f);  // gain's gradient of each chunk
  ParallelFor(rows, kChunk, [&](int64_t begin, int64_t end) {
    float* mine = partial.data() + begin / kChunk * dim;
    for (int64_t r = begin; r < end; ++r) {
      kernel(dim, x + r * dim, gain, rstd[r], dy + r * dim, dx + r * dim, mine);
    }
  });
  for (int64_t c = 0; c < chunks; ++c) HWY_DYNAMIC_DISPATCH(AddRow)(dim, partial.data() + c * dim, dgain);
}

template <class E>
void Gelu(int64_t size, const E* a, E* y) {
  const auto kernel = STRATA_KERNEL(E, Gelu);
  ParallelFor(size, kNumbers, [&](int64_t begin, int64_t end) { kernel(end - begin, a + begin, y + begin); });
}

template <class E>
void GeluVjp(int64_t size, const E* a, const E* dy, E* da) {
  const auto kernel = STRATA_KERNEL(E, GeluVjp);
  ParallelFor(size, kNumbers,
              [&](int64_t begin, int64_t end) { kernel(end - begin, a + begin, dy + begin, da + begin); });
}

template <class E>
void SwiGlu(int64_t rows, int64_t width, const E* a, E* y) {
  const auto kernel = STRATA_KERNEL(E, SwiGlu);
  ParallelFor(rows, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) kernel(width, a + 2 * r * width, y + r * width);
  });
}

template <class E>
void SwiGluVjp(int64_t rows, int64_t width, const E* a, const E* dy, E* da) {
  const auto kernel = STRATA_KERNEL(E, SwiGluVjp);
  ParallelFor(rows, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      kernel(width, a + 2 * r * width, dy + r * width, da + 2 * r * width);
    }
  });
}

RopeTable::RopeTable(int64_t length, int64_t head_dim) : half_(head_dim / 2) {
  for (int64_t t = 0; t < length; ++t) {
    for (int64_t i = 0; i < half_; ++i) {
      const double rate = std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      cosines_.push_back(static_cast<float>(std::cos(static_cast<double>(t) * rate)));
      sines_.push_back(static_cast<float>(std::sin(static_cast<double>(t) * rate)));
    }
  }
}

template <class E>
void Rope(const RopeDims& dims, const RopeTable& table, Turn turn, E* x) {
  const auto kernel = STRATA_KERNEL(E, Rope);
  const int64_t half = table.half();
  const float sign = turn == Turn::kForward ? 1.0f : -1.0f;
  ParallelFor(dims.rows, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t position = dims.start + r % dims.length;
      for (int64_t h = 0; h < dims.heads; ++h) {
        kernel(half, table.cosine(position), table.sine(position), sign,
               x + r * dims.row_stride + h * 2 * half);
      }
    }
  });
}

void Embed(int64_t rows, int64_t dim, const float* table, const int32_t* tokens, float* x) {
  ParallelFor(rows, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) std::copy_n(table + tokens[r] * dim, dim, x + r * dim);
  });
}

void EmbedVjp(int64_t rows, int64_t dim, const float* dx, const int32_t* tokens, float* dtable) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(AddRow);
  ParallelFor(dim, 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r) {
      kernel(end - begin, dx + r * dim + begin, dtable + tokens[r] * dim + begin);
    }
  });
}

template <>
void Convert(int64_t size, const float* x, float* y) {
  std::copy_n(x, size, y);
}
template <>
void Convert(int64_t size, const float* x, BFloat16* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(ConvertBf16);
  ParallelFor(size, kNumbers, [&](int64_t begin, int64_t end) { kernel(end - begin, x + begin, y + begin); });
}

template <>
void Convert(int64_t size, const BFloat16* x, float* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(WidenBf16);
  ParallelFor(size, kNumbers, [&](int64_t begin, int64_t end) { kernel(end - begin, x + begin, y + begin); });
}

double SumOfSquares(int64_t size, const float* x) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(SumOfSquaresRow);
  std::vector<double> partial(static_cast<size_t>((size + kNumbers - 1) / kNumbers));
  ParallelFor(size, kNumbers, [&](int64_t begin, int64_t end) {
    double sum = 0;
    for (int64_t i = begin; i < end; i += 512)
      sum += static_cast<double>(kernel(std::min<int64_t>(512, end - i), x + i));
    partial[static_cast<size_t>(begin / kNumbers)] = sum;
  });
  double total = 0;
  for (const double sum : partial) total += sum;
  return total;
}

bool AllFinite(int64_t size, const float* x) {
  for (int64_t i = 0; i < size; ++i) {
    if (!std::isfinite(x[i])) return false;
  }
  return true;
}

template <class E>
float Dot(int64_t size, const E* a, const E* b) {
  return STRATA_KERNEL(E, Dot)(size, a, b);
}

#define STRATA_INSTANTIATE(E)                                                              \
  template void RmsNorm(int64_t, int64_t, const float*, const float*, double, E*, float*); \
  template void Gelu(int64_t, const E*, E*);                                               \
  template void GeluVjp(int64_t, const E*, const E*, E*);                                  \
  template void SwiGlu(int64_t, int64_t, const E*, E*);                                    \
  template void SwiGluVjp(int64_t, int64_t, const E*, const E*, E*);                       \
  template void Rope(const RopeDims&, const RopeTable&, Turn, E*);                         \
  template float Dot(int64_t, const E*, const E*);
STRATA_INSTANTIATE(float)
STRATA_INSTANTIATE(BFloat16)

}  // namespace strata
#endif  // HWY_ONCE
