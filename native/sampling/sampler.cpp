#include "sampling/sampler.h"

#include <atomic>

namespace octavo {

Sampler::Sampler(std::shared_ptr<ThreadPool> pool, const KernelTable* kernels)
    : pool_(std::move(pool)), kernels_(kernels), scratch_(pool_->size()) {}

void Sampler::run(std::vector<SampleArgs>& rows) {
  if (rows.empty()) return;
  const size_t bytes = static_cast<size_t>(rows.front().vocab) * kSampleScratch * sizeof(float);
  for (Block& block : scratch_)
    if (block.bytes() < bytes) block = Block(bytes);
  if (rows.size() == 1) {
    // One row takes as long as waking the others up, and they leave their cores to other processes meanwhile.
    rows.front().scratch = scratch_.front().as<float>();
    kernels_->sample(rows.front());
    return;
  }
  std::atomic<int32_t> next{0};
  pool_->run([&](int member) {
    for (;;) {
      const int32_t row = next.fetch_add(1, std::memory_order_relaxed);
      if (row >= static_cast<int32_t>(rows.size())) return;
      rows[row].scratch = scratch_[member].as<float>();
      kernels_->sample(rows[row]);
    }
  });
}

}  // namespace octavo
