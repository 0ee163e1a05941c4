#include "ops/project.h"

#include <algorithm>
#include <cassert>
#include <complex>
#include <type_traits>

#include "base/buffer.h"
#include "base/parallel.h"
#include "ops/matmul.h"

namespace strata {
namespace {

// The library chooses its blocking by the shape, so every call gets the same one: missing rows are zeros.
const float* Pad(int64_t rows, int64_t columns, const float* x, Buffer<float>* padded) {
  if (rows == kProjectRows) return x;
  padded->Resize(kProjectRows * columns);
  std::copy(x, x + rows * columns, padded->data());
  std::fill(padded->data() + rows * columns, padded->data() + padded->size(), 0.0f);
  return padded->data();
}

// y [rows, n] = x [rows, k] times w or its transpose.
void PaddedProduct(int64_t rows, int64_t n, int64_t k, Op op, const float* w, int64_t ldw, const float* x,
                   float* y) {
  assert(rows <= kProjectRows);
  static thread_local Buffer<float> padded_x, padded_y;
  const OneThread one_thread;
  const float* from = Pad(rows, k, x, &padded_x);
  float* to = y;
  if (rows < kProjectRows) {
    padded_y.Resize(kProjectRows * n);
    to = padded_y.data();
  }
  Matmul({kProjectRows, n, k, k, ldw, n, Op::kNone, op}, from, w, to);
  if (to != y) std::copy(to, to + rows * n, y);
}

}  // namespace

template <class T>
void Project(int64_t rows, int64_t in, int64_t out, const T* w, int64_t ldw, const T* x, T* y) {
  if constexpr (std::is_same_v<T, float>) {
    PaddedProduct(rows, out, in, Op::kTranspose, w, ldw, x, y);
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < out; ++o) {
        T sum(0);
        for (int64_t i = 0; i < in; ++i) sum += w[o * ldw + i] * x[r * in + i];
        y[r * out + o] = sum;
      }
    }
  }
}

template <class T>
void ProjectBack(int64_t rows, int64_t in, int64_t out, const T* w, int64_t ldw, const T* dy, T* dx) {
  if constexpr (std::is_same_v<T, float>) {
    PaddedProduct(rows, in, out, Op::kNone, w, ldw, dy, dx);
  } else {
    std::fill(dx, dx + rows * in, T(0));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < out; ++o) {
        for (int64_t i = 0; i < in; ++i) dx[r * in + i] += w[o * ldw + i] * dy[r * out + o];
      }
    }
  }
}

template <class T>
void ProjectWeights(int64_t rows, int64_t in, int64_t out, const T* dy, const T* x, T* dw, int64_t ldw) {
  if (rows == 0) return;
  if constexpr (std::is_same_v<T, float>) {
    // Each thread has rows of dw of its own, and sums over all rows of x in one product.
    ParallelFor(out, 64, [&](int64_t begin, int64_t end) {
      const OneThread one_thread;
      Matmul({end - begin, in, rows, out, in, ldw, Op::kTranspose, Op::kNone}, dy + begin, x,
             dw + begin * ldw, Into::kAdd);
    });
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < out; ++o) {
        for (int64_t i = 0; i < in; ++i) dw[o * ldw + i] += dy[r * out + o] * x[r * in + i];
      }
    }
  }
}

template void Project(int64_t, int64_t, int64_t, const float*, int64_t, const float*, float*);
template void Project(int64_t, int64_t, int64_t, const double*, int64_t, const double*, double*);
template void Project(int64_t, int64_t, int64_t, const std::complex<double>*, int64_t,
                      const std::complex<double>*, std::complex<double>*);
template void ProjectBack(int64_t, int64_t, int64_t, const float*, int64_t, const float*, float*);
template void ProjectBack(int64_t, int64_t, int64_t, const double*, int64_t, const double*, double*);
template void ProjectWeights(int64_t, int64_t, int64_t, const float*, const float*, float*, int64_t);
template void ProjectWeights(int64_t, int64_t, int64_t, const double*, const double*, double*, int64_t);

}  // namespace strata
