#include "ops/adamw.h"

#include "base/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/adamw.cc"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "hwy/highway.h"
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata {
namespace HWY_NAMESPACE {

void AdamWRow(int64_t size, const AdamWNumbers& n, float* value, float* gradient, float* first,
              float* second) {
  ForLanes(size, [&](auto d, int64_t i) HWY_ATTR {
    const auto g = hn::Mul(hn::LoadU(d, gradient + i), hn::Set(d, n.gradient_scale));
    const auto m =
        hn::MulAdd(hn::Set(d, n.beta1), hn::LoadU(d, first + i), hn::Mul(hn::Set(d, 1.0f - n.beta1), g));
    const auto v = hn::MulAdd(hn::Set(d, n.beta2), hn::LoadU(d, second + i),
                              hn::Mul(hn::Mul(hn::Set(d, 1.0f - n.beta2), g), g));
    const auto denominator = hn::MulAdd(hn::Sqrt(v), hn::Set(d, n.root), hn::Set(d, n.eps));
    const auto old = hn::LoadU(d, value + i);
    const auto step =
        hn::MulAdd(hn::Set(d, n.shrink), old, hn::Div(hn::Mul(hn::Set(d, n.rate), m), denominator));
    hn::StoreU(hn::Sub(old, step), d, value + i);
    hn::StoreU(m, d, first + i);
    hn::StoreU(v, d, second + i);
    hn::StoreU(hn::Zero(d), d, gradient + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace strata
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {
HWY_EXPORT(AdamWRow);

void AdamWUpdate(int64_t size, const AdamWNumbers& numbers, float* value, float* gradient, float* first,
                 float* second) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(AdamWRow);
  ParallelFor(size, 1 << 15, [&](int64_t begin, int64_t end) {
    kernel(end - begin, numbers, value + begin, gradient + begin, first + begin, second + begin);
  });
}

}  // namespace strata
#endif  // HWY_ONCE
