#include "ops/matmul.h"

#include <dnnl.hpp>
#include <map>
#include <tuple>
#include <type_traits>

#include "base/buffer.h"
#include "base/parallel.h"
#include "ops/nn.h"

namespace strata {
namespace {

using dnnl::memory;

template <class E>
constexpr memory::data_type kType = sizeof(E) == sizeof(float) ? memory::data_type::f32
                                                               : memory::data_type::bf16;

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// A compiled product with its argument descriptors; the pointers are set per call.
struct Product {
  dnnl::matmul primitive;
  memory a, b, c;
};

using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Op, Op, Into, int, int, int>;

memory::desc Describe(int64_t rows, int64_t columns, int64_t leading, Op op, memory::data_type type) {
  const memory::dims strides = op == Op::kNone ? memory::dims{leading, 1} : memory::dims{1, leading};
  return memory::desc({rows, columns}, type, strides);
}

Product Compile(const MatmulDims& d, memory::data_type element, memory::data_type result, Into into) {
  const memory::desc a = Describe(d.m, d.k, d.lda, d.op_a, element);
  const memory::desc b = Describe(d.k, d.n, d.ldb, d.op_b, element);
  const memory::desc c = Describe(d.m, d.n, d.ldc, Op::kNone, result);
  dnnl::primitive_attr attributes;
  if (into == Into::kAdd) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc description(Engine(), a, b, c, attributes);
#else
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes, Engine());
#endif
  return {dnnl::matmul(description), memory(a, Engine(), nullptr), memory(b, Engine(), nullptr),
          memory(c, Engine(), nullptr)};
}

// A product of this storage type that this thread has compiled before, or compiles now, for as many threads
// as it may use.
template <class E, class C>
void Execute(const MatmulDims& d, const E* a, const E* b, C* c, Into into) {
  thread_local std::map<Key, Product> products;
  thread_local dnnl::stream stream(Engine());
  const Key key{d.m, d.n, d.k, d.lda, d.ldb, d.ldc, d.op_a, d.op_b, into, sizeof(E), sizeof(C), Threads()};
  auto found = products.find(key);
  if (found == products.end()) {
    found = products.emplace(key, Compile(d, kType<E>, kType<C>, into)).first;
  }
  Product& product = found->second;
  product.a.set_data_handle(const_cast<E*>(a));
  product.b.set_data_handle(const_cast<E*>(b));
  product.c.set_data_handle(c);
  product.primitive.execute(
      stream, {{DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}});
  stream.wait();
}

// The rows of a stored matrix, widened to f32 without the gaps between them.
const float* Widen(int64_t rows, int64_t columns, int64_t leading, const BFloat16* x, Buffer<float>* wide) {
  wide->Resize(rows * columns);
  float* y = wide->data();
  if (leading == columns) {
    Convert(rows * columns, x, y);
    return y;
  }
  ParallelFor(rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) Convert(columns, x + r * leading, y + r * columns);
  });
  return y;
}

// bf16 storage, f32 products: the same numbers (a bf16 product is exact in f32), sooner where the CPU has no
// tiles.
template <class C>
void ExecuteWidened(const MatmulDims& d, const BFloat16* a, const BFloat16* b, C* c, Into into) {
  thread_local Buffer<float> wide_a, wide_b, wide_c;
  MatmulDims wide = d;
  const bool turned_a = d.op_a == Op::kTranspose, turned_b = d.op_b == Op::kTranspose;
  wide.lda = turned_a ? d.m : d.k;
  wide.ldb = turned_b ? d.k : d.n;
  const float* fa = Widen(turned_a ? d.k : d.m, wide.lda, d.lda, a, &wide_a);
  const float* fb = Widen(turned_b ? d.n : d.k, wide.ldb, d.ldb, b, &wide_b);
  if constexpr (std::is_same_v<C, float>) {
    Execute(wide, fa, fb, c, into);
  } else {
    wide.ldc = d.n;
    wide_c.Resize(d.m * d.n);
    Execute(wide, fa, fb, wide_c.data(), into);
    const float* result = wide_c.data();  // this thread's buffer, also for the others
    ParallelFor(d.m, 64, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) Convert(d.n, result + r * d.n, c + r * d.ldc);
    });
  }
}

}  // namespace

template <class E, class C>
void Matmul(const MatmulDims& d, const E* a, const E* b, C* c, Into into) {
  if (d.m == 0 || d.n == 0) return;
  if constexpr (std::is_same_v<E, BFloat16>) {
    if (!Bf16IsFast()) return ExecuteWidened(d, a, b, c, into);
  }
  Execute(d, a, b, c, into);
}

template void Matmul(const MatmulDims&, const float*, const float*, float*, Into);
template void Matmul(const MatmulDims&, const BFloat16*, const BFloat16*, float*, Into);
template void Matmul(const MatmulDims&, const BFloat16*, const BFloat16*, BFloat16*, Into);

bool Bf16IsFast() {
  static const bool fast = [] {
    const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    const auto amx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
    return (isa & amx) == amx;
  }();
  return fast;
}

}  // namespace strata
