// Program: a model's forward pass as instructions on buffers. Recorded once and replayed for every batch (the tape), or run
// instruction by instruction as it is emitted (immediate, the plain twin): both give the same bytes.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "runtime/memory.h"
#include "runtime/thread_pool.h"
#include "tape/ahead.h"
#include "tape/attention_plan.h"
#include "tape/flow.h"
#include "tape/instruction.h"
#include "kvcache/kv_cache.h"
#include "tape/stopwatch.h"

namespace octavo {

// The arrays of one step; see octavo.ops.interface.StepInputs.
struct StepArrays {
  const int32_t* token_ids;
  const int32_t* positions;
  const int32_t* slots;
  const int32_t* query_start;
  const int32_t* first_position;
  const int32_t* block_tables;   // [num_seqs][max_blocks]
  const int32_t* logit_rows;
  int32_t num_tokens, num_seqs, max_blocks, num_logits;

  int32_t sequence_of(int32_t row) const {
    return static_cast<int32_t>(std::upper_bound(query_start, query_start + num_seqs + 1, row) - query_start) - 1;
  }
};

class Program {
 public:
  // Throws std::bad_alloc. `max_tokens` and `max_logits` bound the rows of a step.
  Program(std::shared_ptr<ThreadPool> pool, const KernelTable* kernels, std::shared_ptr<KvCache> cache, int32_t max_tokens,
          int32_t max_logits, bool immediate);
  Program(const Program&) = delete;

  // Emitting. Operands must be views of this program; sizes were checked by the caller (bindings).
  View embedding(std::shared_ptr<const Linear> table, float scale);
  View linear(View x, std::shared_ptr<const Linear> weight);
  View rms_norm(View x, std::shared_ptr<const Vector> weight, float eps);
  View add(View a, View b);
  View rope(View x, std::shared_ptr<const RopeTable> table, int32_t head_dim);
  void kv_write(View k, View v, const AttentionLayer& layer);
  View attention(View q, const AttentionLayer& layer);
  View gated(OpCode op, View gate_up);
  View select_rows(View x);
  View softcap(View x, float cap);

  bool fits_cache(const AttentionLayer& layer) const {
    return layer.layer >= 0 && layer.layer < cache_->num_layers && layer.num_kv_heads == cache_->num_kv_heads &&
           layer.head_dim == cache_->head_dim;
  }
  RowKind kind_of(View view) const { return buffers_[view.buffer].kind; }

  // Ends the recording: fuses residual additions, plans the buffers, cuts the tape into phases.
  void seal(View output);

  // Immediate mode: forget the last step's instructions and take the next step's arrays.
  void begin(const StepArrays& step);

  // Replays a sealed tape.
  void run(const StepArrays& step);

  int32_t max_rows(RowKind kind) const { return kind == RowKind::tokens ? max_tokens_ : max_logits_; }
  int32_t token_limit() const { return token_limit_; }   // rows of the smallest embedding table
  const StepArrays& step() const { return step_; }   // no tokens before the first begin or run

  // Row 0 of the view's memory; rows lie `*stride` floats apart. Valid until the next run or begin.
  const float* read(View view, int64_t* stride) const;

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

  const std::vector<Instruction>& instructions() const { return instructions_; }
  int32_t num_phases() const { return static_cast<int32_t>(phases_.size()); }

 private:
  struct Buffer {
    int32_t cols;
    RowKind kind;
    int32_t slot = -1;
  };
  struct Slot {                // memory shared by buffers whose lives do not overlap
    int32_t stride;
    RowKind kind;
    Block memory;
  };
  struct QuantSlot {
    int32_t cols;
    RowKind kind;
    View holds;                // what was quantised into it last
    Block codes, scales, sums, products;
    QuantRows rows{};
  };
  struct Phase {               // instructions [first, last) that need no barrier between them
    int32_t first, last;
    RowKind rows;
    OpCode op;                 // gemm, attention, or anything row-local
    int32_t chain_end = 0;     // phases up to here can run block of rows by block of rows, without a barrier
    int32_t chain_rows = 0;    // rows per member from which on that is faster
    int32_t product = 0;       // the first product from this phase on; one past the last phase: none
  };
  struct Task {                // items [first, last): rows, panels or attention tasks
    int32_t first, last;
  };
  struct KeyCost {             // layers of one window: multiply-adds of a row for each key that it sees, in all of them
    int32_t window;
    double macs;
  };
  struct PhaseCount {
    int64_t runs = 0;
    int64_t nanoseconds = 0;
    double macs = 0, bytes = 0;
  };

  View new_view(int32_t cols, RowKind kind);
  void emit(Instruction instruction);
  int32_t quantise(View x, int32_t group);
  void fuse_residuals();
  void plan_buffers(View output);
  void cut_phases();
  void reset_counters() { counters_ = std::vector<std::atomic<int32_t>>(phases_.size() * static_cast<size_t>(pool_->size())); }
  std::atomic<int32_t>& counter(int32_t phase, int member) {
    return counters_[phases_.size() * static_cast<size_t>(member) + static_cast<size_t>(phase)];
  }
  void link_chains();
  void cut_segments();
  int32_t row_count(RowKind kind) const { return kind == RowKind::tokens ? step_.num_tokens : step_.num_logits; }
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
  void run_gemm(int32_t phase, int member);
  Ahead ahead_of(int32_t phase, int member) const;
  static int32_t panels_of(const Instruction& gemm);
  void multiply(const Instruction& gemm, Task rows, Task panels) const;
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
  const int32_t max_tokens_, max_logits_;
  const bool immediate_;

  std::vector<Buffer> buffers_;
  std::vector<Slot> slots_;
  std::vector<QuantSlot> quant_slots_;
  std::vector<Instruction> instructions_;
  std::vector<Phase> phases_;
  std::vector<std::atomic<int32_t>> counters_;   // [member][phase] items taken of that member's share
  std::vector<PhaseCount> counts_;               // one per phase while profiling, else empty
  PhaseCount waiting_;                           // of member 0, for the others
  std::vector<int32_t> segments_;                // first phases of the segments of token rows, and the phase after them
  int32_t flow_rows_ = 0;                        // rows per member from which on blocks of rows go through them
  double token_macs_ = 0;                        // multiply-adds of products per token, without the output head
  std::vector<KeyCost> key_costs_;
  Flow flow_;
  bool flows_ = false;                           // the current step
  int64_t serial_nanoseconds_ = 0;               // of what was last run inside a barrier
  std::deque<AttentionPlan> attention_plans_;    // one per kind of attention layer
  std::vector<Block> scratch_;                   // one per pool member
  int64_t scratch_floats_ = 0;
  StepArrays step_{};
  int32_t token_limit_ = INT32_MAX;
};

}  // namespace octavo
