#include "base/parallel.h"

#include <omp.h>

namespace strata {

void SetThreads(int threads) { omp_set_num_threads(threads); }
int Threads() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

}  // namespace strata
