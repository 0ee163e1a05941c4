#ifndef STRATA_OPS_NN_H_
#define STRATA_OPS_NN_H_

#include <cstdint>
#include <vector>

#include "ops/bfloat16.h"

namespace strata {

// The elementwise and row-wise ops of a Transformer's body. E (float or BFloat16) is the storage type of what
// enters or leaves a matrix product; arithmetic is f32. All run over rows in fixed chunks on all threads.

// y = x * rstd * gain,  rstd = 1 / sqrt(mean(x^2) + eps)   (Zhang and Sennrich, arXiv 1910.07467).
// x [rows, dim]; y [rows, dim], rstd [rows] assigned.
template <class E>
void RmsNorm(int64_t rows, int64_t dim, const float* x, const float* gain, double eps, E* y, float* rstd);
// dx assigned, dgain [dim] accumulated.
void RmsNormVjp(int64_t rows, int64_t dim, const float* x, const float* gain, const float* rstd,
                const float* dy, float* dx, float* dgain);

// y = a * sigmoid(2 sqrt(2/pi) (a + 0.044715 a^3)), the tanh form of GELU (Hendrycks and Gimpel, arXiv
// 1606.08415).
template <class E>
void Gelu(int64_t size, const E* a, E* y);
// da assigned; may alias dy.
template <class E>
void GeluVjp(int64_t size, const E* a, const E* dy, E* da);

// y = silu(g) * h for a = [g | h] per row   (Shazeer, arXiv 2002.05202).  a [rows, 2 width], y [rows, width].
template <class E>
void SwiGlu(int64_t rows, int64_t width, const E* a, E* y);
template <class E>
void SwiGluVjp(int64_t rows, int64_t width, const E* a, const E* dy, E* da);

// Cosines and sines of rotary positions (Su et al., arXiv 2104.09864) for positions [0, length): channels i
// and i + head_dim/2 of a head turn by position * 10000^(-2i/head_dim).
class RopeTable {
 public:
  RopeTable(int64_t length, int64_t head_dim);
  int64_t half() const { return half_; }
  const float* cosine(int64_t position) const { return cosines_.data() + position * half_; }
  const float* sine(int64_t position) const { return sines_.data() + position * half_; }

 private:
  int64_t half_;
  std::vector<float> cosines_, sines_;
};

// Turns the first `heads` heads of each row in place; row r has position start + r mod length.
struct RopeDims {
  int64_t rows = 0, length = 0, start = 0, heads = 0, row_stride = 0;
};
enum class Turn { kForward, kBack };  // kBack undoes kForward and is its VJP
template <class E>
void Rope(const RopeDims& dims, const RopeTable& table, Turn turn, E* x);

// x[r] = table[tokens[r]]; and its gradient, summed over rows in order: dtable accumulated.
void Embed(int64_t rows, int64_t dim, const float* table, const int32_t* tokens, float* x);
void EmbedVjp(int64_t rows, int64_t dim, const float* dx, const int32_t* tokens, float* dtable);

// Rounds f32 to E, or widens bf16 to f32.
template <class X, class Y>
void Convert(int64_t size, const X* x, Y* y);

// Sum of squares in double over fixed chunks.
double SumOfSquares(int64_t size, const float* x);
bool AllFinite(int64_t size, const float* x);

// sum_d a[d] * b[d]
template <class E>
float Dot(int64_t size, const E* a, const E* b);

}  // namespace strata

#endif  // STRATA_OPS_NN_H_
