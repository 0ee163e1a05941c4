#include "ops/mix.h"

#include <complex>

#include "ops/ref.h"

// The law for double and complex<double>: the scalar truth. The float kernels are in mix_read.cc,
// mix_write.cc, mix_write_vjp.cc and mix_sense.cc.
namespace strata {

template <class T>
void Read(const MixDims& m, Coef kind, const T* read, const T* const* slots, T* x) {
  ref::Read(m, kind, read, slots, x);
}

template <class T>
void ReadVjp(const MixDims& m, Coef kind, const T* read, const T* const* slots, const T* dx, T* const* dslots,
             T* dread) {
  ref::ReadVjp(m, kind, read, slots, dx, dslots, dread);
}

template <class T>
void Write(const MixDims& m, Coef keep_kind, const T* keep, Coef write_kind, const T* write,
           const T* const* slots, const T* u, T* const* next) {
  ref::Write(m, keep_kind, keep, write_kind, write, slots, u, next);
}

template <class T>
void WriteVjp(const MixDims& m, Coef keep_kind, const T* keep, Coef write_kind, const T* write,
              const T* const* slots, const T* u, T* const* dslots, T* du, T* dkeep, T* dwrite) {
  ref::WriteVjp(m, keep_kind, keep, write_kind, write, slots, u, dslots, du, dkeep, dwrite);
}

template <class T>
void Sense(const MixDims& m, int rows, const T* phi, int64_t slot_stride, int64_t row_stride,
           const T* const* slots, T* dot, T* sq) {
  ref::Sense(m, rows, phi, slot_stride, row_stride, slots, dot, sq);
}

template <class T>
void SenseVjp(const MixDims& m, int rows, const T* phi, int64_t slot_stride, int64_t row_stride,
              const T* const* slots, const T* ddot, const T* dsq, T* const* dslots, T* dphi) {
  ref::SenseVjp(m, rows, phi, slot_stride, row_stride, slots, ddot, dsq, dslots, dphi);
}

using Complex = std::complex<double>;
template void Read(const MixDims&, Coef, const double*, const double* const*, double*);
template void Read(const MixDims&, Coef, const Complex*, const Complex* const*, Complex*);
template void Write(const MixDims&, Coef, const double*, Coef, const double*, const double* const*,
                    const double*, double* const*);
template void Write(const MixDims&, Coef, const Complex*, Coef, const Complex*, const Complex* const*,
                    const Complex*, Complex* const*);
template void Sense(const MixDims&, int, const double*, int64_t, int64_t, const double* const*, double*,
                    double*);
template void Sense(const MixDims&, int, const Complex*, int64_t, int64_t, const Complex* const*, Complex*,
                    Complex*);
template void ReadVjp(const MixDims&, Coef, const double*, const double* const*, const double*,
                      double* const*, double*);
template void WriteVjp(const MixDims&, Coef, const double*, Coef, const double*, const double* const*,
                       const double*, double* const*, double*, double*, double*);
template void SenseVjp(const MixDims&, int, const double*, int64_t, int64_t, const double* const*,
                       const double*, const double*, double* const*, double*);

}  // namespace strata
