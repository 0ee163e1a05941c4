#ifndef STRATA_OPS_MIX_H_
#define STRATA_OPS_MIX_H_

#include <cstdint>

namespace strata {

// The law. A state is a list of slots, each [tokens, dim] row-major; x is a sublayer's input, u its output.
//
//   read    x[t,d]     = sum_k  read[t,k(,d)]   * S[t,k,d]
//   write   S'[t,j,d]  = sum_k  keep[t,j,k(,d)] * S[t,k,d]  +  write[t,j(,d)] * u[t,d]      index order (to,
//   from) sense   dot[t,k,m] = <phi[k,m,:], S[t,k,:]>,   sq[t,k] = |S[t,k,:]|^2
//
// All ops are templates over T: float runs the SIMD kernels of mix.cc; double and std::complex<double>
// (complex: forward only) run the scalar truth in ref.h. Rows are independent and their reduction order is
// fixed: results do not depend on the number of tokens, on how tokens are split over calls, or on the number
// of threads.

// How a coefficient varies; fixes its layout for n slots:
//   kOne      identically 1, no data
//   kToken    [tokens, n]
//   kChannel  [tokens, n, dim]
//   kMatrix   [tokens, n, n] (to, from); keep only
enum class Coef { kOne, kToken, kChannel, kMatrix };

// Numbers per token of a coefficient over n slots.
constexpr int64_t CoefSize(Coef kind, int64_t n, int64_t dim) {
  return kind == Coef::kOne ? 0 : kind == Coef::kToken ? n : kind == Coef::kChannel ? n * dim : n * n;
}

struct MixDims {
  int64_t tokens = 0;
  int64_t dim = 0;
  int slots = 1;
};

// x assigned; may alias no slot unless kind == kOne and slots == 1. One pass over the slots.
template <class T>
void Read(const MixDims& dims, Coef kind, const T* read, const T* const* slots, T* x);

// Gradient of Read: dslots accumulated, dread accumulated (unused for kOne).
template <class T>
void ReadVjp(const MixDims& dims, Coef kind, const T* read, const T* const* slots, const T* dx,
             T* const* dslots, T* dread);

// next[j] assigned; next[j] may equal slots[j] (in place). One pass over the slots and u.
template <class T>
void Write(const MixDims& dims, Coef keep_kind, const T* keep, Coef write_kind, const T* write,
           const T* const* slots, const T* u, T* const* next);

// Gradient of Write.  slots: the state before the write.  dslots: in dL/dS', out dL/dS (in place).
// du [tokens, dim] assigned; dkeep and dwrite accumulated (unused for kOne).
template <class T>
void WriteVjp(const MixDims& dims, Coef keep_kind, const T* keep, Coef write_kind, const T* write,
              const T* const* slots, const T* u, T* const* dslots, T* du, T* dkeep, T* dwrite);

// phi [slots, m, dim], or [m, dim] when phi_slot_stride == 0 (the same for all slots); phi_slot_stride and
// phi_row_stride are in elements, so phi may be a slice of a wider matrix. dot [tokens, slots, m] and
// sq [tokens, slots] assigned; sq may be null.
template <class T>
void Sense(const MixDims& dims, int m, const T* phi, int64_t phi_slot_stride, int64_t phi_row_stride,
           const T* const* slots, T* dot, T* sq);

// Gradient of Sense: dslots += sum_m ddot * phi + 2 * dsq * S;  dphi += sum_t ddot * S (same layout as phi;
// summed over tokens in order). dsq and dphi may be null.
template <class T>
void SenseVjp(const MixDims& dims, int m, const T* phi, int64_t phi_slot_stride, int64_t phi_row_stride,
              const T* const* slots, const T* ddot, const T* dsq, T* const* dslots, T* dphi);

}  // namespace strata

#endif  // STRATA_OPS_MIX_H_
