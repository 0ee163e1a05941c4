#ifndef STRATA_OPS_PROJECT_H_
#define STRATA_OPS_PROJECT_H_

#include <cstdint>

namespace strata {

// Products with a weight matrix w [out, in] (rows ldw apart) for few rows at a time, as the mechanisms' wide
// controllers need them: through the matrix library for float, plain loops for double and complex. The result
// of a row depends neither on the other rows nor on the number of threads.
inline constexpr int64_t kProjectRows = 64;  // the most rows of one call

// y[r,:] = w x[r,:].  x [rows, in], y [rows, out] assigned.
template <class T>
void Project(int64_t rows, int64_t in, int64_t out, const T* w, int64_t ldw, const T* x, T* y);
// dx[r,:] = w^T dy[r,:].  dy [rows, out], dx [rows, in] assigned.
template <class T>
void ProjectBack(int64_t rows, int64_t in, int64_t out, const T* w, int64_t ldw, const T* dy, T* dx);
// dw += sum_t dy[t,:] x[t,:]^T over any number of rows, on all threads.  dy [rows, out], x [rows, in].
template <class T>
void ProjectWeights(int64_t rows, int64_t in, int64_t out, const T* dy, const T* x, T* dw, int64_t ldw);

}  // namespace strata

#endif  // STRATA_OPS_PROJECT_H_
