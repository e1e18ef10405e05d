// The limits of this machine, measured: what memory delivers and what one kernel variant's arithmetic can do at most.
#pragma once

#include "kernels/table.h"
#include "runtime/thread_pool.h"

namespace octavo {

struct Limits {
  double read_bytes_per_s;   // streaming read of memory far larger than the caches, all members together
  double fma_macs_per_s;     // float32 multiply-accumulates
  double int8_macs_per_s;    // int8 multiply-accumulates of the product's own tile, operands in the first-level cache
};

// Takes about half a second. The best of several rounds counts: on a shared machine the others measure the neighbours.
Limits measure_limits(ThreadPool& pool, const KernelTable& kernels);

}  // namespace octavo
