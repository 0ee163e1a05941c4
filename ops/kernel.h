#ifndef STRATA_OPS_KERNEL_H_
#define STRATA_OPS_KERNEL_H_

// Picks the kernel for the storage type E and the CPU.
#define STRATA_KERNEL(E, name)                 \
  [] {                                         \
    if constexpr (sizeof(E) == sizeof(float))  \
      return HWY_DYNAMIC_DISPATCH(name##F32);  \
    else                                       \
      return HWY_DYNAMIC_DISPATCH(name##Bf16); \
  }()

#endif  // STRATA_OPS_KERNEL_H_
