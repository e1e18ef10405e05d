// Executor: the memory that a recording needs, and its way through a step on the thread pool.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kvcache/kv_cache.h"
#include "runtime/memory.h"
#include "runtime/thread_pool.h"
#include "tape/ahead.h"
#include "tape/attention_plan.h"
#include "tape/flow.h"
#include "tape/recording.h"
#include "tape/routing.h"
#include "tape/step.h"
#include "tape/stopwatch.h"

namespace octavo {

class Executor {
 public:
  // Throws std::bad_alloc. `max_tokens` and `max_logits` bound the rows of a step.
  Executor(std::shared_ptr<ThreadPool> pool, const KernelTable* kernels, std::shared_ptr<KvCache> cache,
           std::shared_ptr<const Recording> recording, int32_t max_tokens, int32_t max_logits);
  Executor(const Executor&) = delete;

  // Runs a sealed recording.
  void run(const StepArrays& step);

  // For a recording that grows: takes the arrays of a step and forgets all buffers, then runs the latest instruction each time.
  void begin(const StepArrays& step);
  void run_latest();

  int32_t max_rows(RowKind kind) const { return rows_of(kind, max_tokens_, max_logits_); }
  int32_t token_limit() const { return token_limit_; }         // rows of the smallest table that tokens are looked up in
  int32_t position_limit() const { return position_limit_; }   // the same of positions

  // Row 0 of the view's memory; rows lie `*stride` floats apart. Valid until the next run or begin.
  const float* read(View view, int64_t* stride) const { return address(view, stride); }

  const Recording& recording() const { return *recording_; }
  size_t buffer_bytes() const;

  // Counting what each phase costs, over all runs since it was switched on. Off, it costs one branch a phase.
  struct PhaseProfile {
    std::string label;   // e.g. "rms_norm+quantise", "gemm q4 960x576"
    int64_t runs;
    double seconds;
    double macs;         // multiply-accumulates
    double bytes;        // weights and cache read
  };
  void set_profiling(bool on);
  std::vector<PhaseProfile> profile() const;

 private:
  struct Rounded {             // memory of a RoundedSlot
    Block codes, scales, sums, products;
    QuantRows rows{};
  };
  struct Task {                // items [first, last): rows, panels or attention tasks
    int32_t first, last;
  };
  struct PhaseCount {
    int64_t runs = 0;
    int64_t nanoseconds = 0;
    double macs = 0, bytes = 0;
  };

  void reserve_rounded();
  void prepare(const Instruction& instruction);
  void take_phases(const std::vector<Phase>& phases);
  int32_t num_phases() const { return static_cast<int32_t>(phases_->size()); }
  const Phase& phase_at(int32_t index) const { return (*phases_)[index]; }
  const Instruction& head_of(int32_t phase) const { return recording_->instructions[phase_at(phase).first]; }
  std::atomic<int32_t>& counter(int32_t phase, int member) {
    return counters_[phases_->size() * static_cast<size_t>(member) + static_cast<size_t>(phase)];
  }
  int32_t rows_of(RowKind kind, int32_t tokens, int32_t logits) const {
    if (kind == RowKind::logits) return logits;
    return kind == RowKind::routed ? tokens * recording_->top_k : tokens;
  }
  int32_t row_count(RowKind kind) const { return rows_of(kind, step_.num_tokens, step_.num_logits); }
  float* address(View view, int64_t* stride) const;

  void run_phases();
  int32_t block_rows() const;
  bool is_even(int32_t block_rows) const;
  void run_flow(int member, bool counting);
  void run_segment(int32_t segment, Task rows, int member, bool counting);
  void attend(const Instruction& attention, Task rows, int member) const;
  int32_t chain_end(int32_t phase) const;
  int32_t serial_end(int32_t phase) const;
  void run_serial(int32_t begin, int32_t end);
  Task share_of(int32_t count, int member) const;
  bool take(int32_t phase, int32_t count, int32_t step, int member, Task* task);
  void run_chain(int32_t begin, int32_t end, int member, bool counting);
  void run_block(const Phase& phase, Task rows) const;
  void run_phase(int32_t phase, int member);
  void run_rows(const Instruction& instruction, int32_t first, int32_t last) const;
  const int32_t* indices_of(IndexKind kind) const;
  void run_gemm(int32_t phase, int member);
  Ahead ahead_of(int32_t phase, int member) const;
  static int32_t panels_of(const Instruction& gemm);
  void multiply_block(const Instruction& gemm, Task rows) const;
  void multiply(const Instruction& gemm, const Linear& weight, Task rows, Task panels) const;
  void sort_routes(const Instruction& sort);
  bool take_panels(int32_t phase, int32_t panels, int member, Task* task);
  void run_attention(int32_t phase, int member);
  AttentionArgs attention_args(const Instruction& attention, int32_t sequence, int member) const;
  NextAttention seen_by(const AttentionLayer& layer, int32_t sequence, int32_t kv_head) const;
  AttentionPlan& plan_for(const AttentionLayer& layer);
  void count_run(int32_t phase);
  std::string phase_label(const Phase& phase) const;

  std::shared_ptr<ThreadPool> pool_;
  const KernelTable* kernels_;
  std::shared_ptr<KvCache> cache_;
  std::shared_ptr<const Recording> recording_;
  const int32_t max_tokens_, max_logits_;
  int32_t token_limit_ = INT32_MAX, position_limit_ = INT32_MAX;
  std::vector<int32_t> zeros_;                   // indices into a table of which all rows look up the first entry

  std::vector<Block> slots_;
  std::vector<Rounded> rounded_;
  std::deque<AttentionPlan> attention_plans_;    // one per kind of attention layer
  std::vector<Block> scratch_;                   // one per pool member
  int64_t scratch_floats_ = 0;

  const std::vector<Phase>* phases_ = nullptr;   // the recording's, or the latest instruction
  std::vector<Phase> latest_;
  std::vector<std::atomic<int32_t>> counters_;   // [member][phase] items taken of that member's share
  std::vector<PhaseCount> counts_;               // one per phase while profiling, else empty
  PhaseCount waiting_;                           // of member 0, for the others
  int64_t serial_nanoseconds_ = 0;               // of what was last run inside a barrier
  Routing routing_;                              // of the latest sort_routes
  Flow flow_;
  bool flows_ = false;                           // the current step
  StepArrays step_{};
};

}  // namespace octavo
