// Blocks of rows that need no barrier: which block comes next, and what a block does in a segment.
#include "tape/flow.h"

#include <algorithm>

#include "tape/executor.h"

namespace octavo {
namespace {

// A multiply-add of attention takes as long as about this many of a product of codes.
constexpr double kAttentionCost = 4;
// A block goes through its segments one after the other, so that the slowest one must not take longer than a member's share.
constexpr double kMostOfShare = 1.05;

}  // namespace

void Flow::cut(const StepArrays& step, int32_t block_rows, int32_t segments) {
  size_ = (step.num_tokens + block_rows - 1) / block_rows;
  segments_ = segments;
  if (size_ > capacity_) {
    blocks_ = std::make_unique<Block[]>(size_);
    capacity_ = size_;
  }
  for (int32_t b = 0; b < size_; ++b) {
    Block& block = blocks_[b];
    block.state.store(0, std::memory_order_relaxed);
    block.first_row = b * block_rows;
    block.last_row = std::min(block.first_row + block_rows, step.num_tokens);
    block.needs = step.query_start[step.sequence_of(block.first_row)] / block_rows;
  }
}

bool Flow::can_begin(int32_t block, int32_t segment) const {
  if (segment == 0) return true;
  for (int32_t b = blocks_[block].needs; b < block; ++b)
    if (passed(b) < segment) return false;
  return true;
}

Flow::Next Flow::take(int member, int members, int32_t* block, int32_t* segment) {
  const int32_t own = static_cast<int32_t>(int64_t{size_} * member / members);
  for (;;) {
    int32_t best = -1, best_state = 2 * segments_, at_end = 0;
    for (int32_t i = 0; i < size_; ++i) {
      const int32_t b = (own + i) % size_;
      const int32_t state = blocks_[b].state.load(std::memory_order_acquire);
      at_end += state == 2 * segments_;
      if (state % 2 != 0 || state >= best_state || !can_begin(b, state / 2)) continue;
      best = b;
      best_state = state;
    }
    if (best < 0) return at_end == size_ ? Next::end : Next::wait;
    *block = best;
    *segment = best_state / 2;
    if (blocks_[best].state.compare_exchange_strong(best_state, best_state + 1, std::memory_order_acq_rel)) return Next::work;
  }
}

// Whether the blocks are alike enough to go their own ways; else attention is shared out tile by tile, between barriers.
bool Executor::is_even(int32_t block_rows) const {
  double total = 0, most = 0;
  for (int32_t first = 0; first < step_.num_tokens; first += block_rows) {
    const int32_t last = std::min(first + block_rows, step_.num_tokens);
    double cost = (last - first) * recording_->token_macs;
    for (int32_t row = first; row < last; ++row)
      for (const KeyCost& layers : recording_->key_costs) {
        const int32_t position = step_.positions[row];
        cost += kAttentionCost * layers.macs * (position + 1 - oldest_seen(position, layers.window));
      }
    total += cost;
    most = std::max(most, cost);
  }
  return most * pool_->size() <= kMostOfShare * total;
}

void Executor::run_flow(int member, bool counting) {
  int32_t block = 0, segment = 0, looks = 0;
  for (;;) {
    const Stopwatch watch(counting);
    switch (flow_.take(member, pool_->size(), &block, &segment)) {
      case Flow::Next::end: return;
      case Flow::Next::wait:
        ThreadPool::pause(looks++);
        if (counting) waiting_.nanoseconds += watch.nanoseconds();
        continue;
      case Flow::Next::work: break;
    }
    looks = 0;
    run_segment(segment, {flow_.first_row(block), flow_.last_row(block)}, member, counting);
    flow_.finish(block);
  }
}

void Executor::run_segment(int32_t segment, Task rows, int member, bool counting) {
  for (int32_t i = recording_->segments[segment]; i < recording_->segments[segment + 1]; ++i) {
    const Stopwatch watch(counting);
    if (phase_at(i).op == OpCode::attention) attend(head_of(i), rows, member);
    else run_block(phase_at(i), rows);
    if (counting) counts_[i].nanoseconds += watch.nanoseconds();
  }
}

void Executor::attend(const Instruction& in, Task rows, int member) const {
  for (int32_t sequence = step_.sequence_of(rows.first); sequence < step_.num_seqs; ++sequence) {
    const int32_t start = step_.query_start[sequence], end = step_.query_start[sequence + 1];
    if (start >= rows.last) break;
    AttentionArgs args = attention_args(in, sequence, member);
    args.t0 = std::max(rows.first - start, 0);
    args.t1 = std::min(rows.last, end) - start;
    for (args.kv_head = 0; args.kv_head < args.num_kv_heads; ++args.kv_head) {
      const bool last_head = args.kv_head + 1 == args.num_kv_heads;
      args.next = {};
      if (!last_head) args.next = seen_by(in.attention, sequence, args.kv_head + 1);
      else if (end < rows.last) args.next = seen_by(in.attention, sequence + 1, 0);
      kernels_->attention(args);
    }
  }
}

}  // namespace octavo
