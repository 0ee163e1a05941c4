#ifndef STRATA_OPS_MATMUL_H_
#define STRATA_OPS_MATMUL_H_

#include <cstdint>

#include "ops/bfloat16.h"

namespace strata {

enum class Op { kNone, kTranspose };
enum class Into { kAssign, kAdd };

// C[m,n] = op(A)[m,k] op(B)[k,n], row-major with leading dimensions in elements; with Into::kAdd added to C.
// Products and sums in f32 whatever the storage type. Inside a ParallelFor it runs on the calling thread
// alone.
struct MatmulDims {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  Op op_a = Op::kNone, op_b = Op::kNone;
};
template <class E, class C>
void Matmul(const MatmulDims& dims, const E* a, const E* b, C* c, Into into = Into::kAssign);

// True where this CPU multiplies bf16 faster than f32 (it has AMX tiles).
bool Bf16IsFast();

}  // namespace strata

#endif  // STRATA_OPS_MATMUL_H_
