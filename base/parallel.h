#ifndef STRATA_BASE_PARALLEL_H_
#define STRATA_BASE_PARALLEL_H_

#include <algorithm>
#include <cstdint>
#include <exception>

namespace strata {

// Threads that ParallelFor and the matrix products use. Default: all cores.
void SetThreads(int threads);
int Threads();

// As long as it lives, what the calling thread starts runs on that thread alone.
class OneThread {
 public:
  OneThread() : before_(Threads()) { SetThreads(1); }
  ~OneThread() { SetThreads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Calls f(begin, end) for [0, n) cut in chunks of `chunk`. The cuts do not depend on the number of threads,
// so whatever f computes per chunk does not either. What f throws (out of memory) reaches the caller, the
// first of several, after the other chunks.
template <class F>
void ParallelFor(int64_t n, int64_t chunk, F&& f) {
  const int64_t chunks = (n + chunk - 1) / chunk;
  if (chunks <= 1) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
  std::exception_ptr thrown;
#pragma omp parallel for schedule(dynamic) num_threads(Threads())
  for (int64_t c = 0; c < chunks; ++c) {
    try {
      f(c * chunk, std::min(n, (c + 1) * chunk));
    } catch (...) {
#pragma omp critical(strata_thrown)
      if (!thrown) thrown = std::current_exception();
    }
  }
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace strata

#endif  // STRATA_BASE_PARALLEL_H_
