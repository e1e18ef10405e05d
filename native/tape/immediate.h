// Immediate: the plain twin of a recording and its executor. Each instruction runs when it is emitted, with the same bytes.
#pragma once

#include <memory>

#include "tape/executor.h"
#include "tape/recorder.h"

namespace octavo {

class Immediate {
 public:
  Immediate(std::shared_ptr<ThreadPool> pool, const KernelTable* kernels, std::shared_ptr<KvCache> cache, int32_t max_tokens,
            int32_t max_logits)
      : recorder_(cache, [this] { executor_.run_latest(); }),
        executor_(std::move(pool), kernels, cache, recorder_.recording(), max_tokens, max_logits) {}

  // What is emitted from now on works on this step.
  void begin(const StepArrays& step) {
    recorder_.clear();
    executor_.begin(step);
  }

  Recorder& recorder() { return recorder_; }
  Executor& executor() { return executor_; }

 private:
  Recorder recorder_;
  Executor executor_;
};

}  // namespace octavo
