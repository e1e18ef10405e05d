// Sampling: one kernel call per row, rows shared out over the pool.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/table.h"
#include "runtime/memory.h"
#include "runtime/thread_pool.h"

namespace octavo {

class Sampler {
 public:
  Sampler(std::shared_ptr<ThreadPool> pool, const KernelTable* kernels);
  Sampler(const Sampler&) = delete;

  // Fills in each row's scratch and runs it. Rows are independent: their order and the pool's size never show.
  void run(std::vector<SampleArgs>& rows);

 private:
  std::shared_ptr<ThreadPool> pool_;
  const KernelTable* kernels_;
  std::vector<Block> scratch_;   // one per member, grown to kSampleScratch * vocab floats
};

}  // namespace octavo
