// Phases on the thread pool. Members take tasks from a counter; which member runs a task never shows in a result.
#include <algorithm>
#include <cstring>

#include "tape/executor.h"

namespace octavo {
namespace {

// Rows a member takes at a time in row-local phases: few enough to share the work, enough to amortise the counter.
constexpr int32_t kMaxRowsPerTask = 16;
// A task of a product is this part of a member's share of what is left, in panels: long runs first, because the first panels of
// a task find nothing fetched for them, short ones at the end for an even finish. Longer runs leave less to share when a member
// loses its core for a while.
constexpr int32_t kShareNumerator = 2, kShareDenominator = 3;
constexpr int32_t kMinPanelsPerTask = 4;

// Rows of a block that passes through a chain: as many as keep their activations in the L2 cache of a core, in more
// blocks than members where that leaves this many, to share the work.
constexpr int32_t kMaxBlockRows = 48;
constexpr int32_t kSharedBlockRows = 24;

constexpr int32_t kSerialRows = 2;

int32_t divide_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

}  // namespace

void Executor::run_phases() {
  for (std::atomic<int32_t>& counter : counters_) counter.store(0, std::memory_order_relaxed);
  pool_->run([this](int member) {
    const int32_t count = num_phases();
    const bool counting = member == 0 && !counts_.empty();
    for (int32_t i = 0, end, next; i < count; i = next) {
      const bool flow = flows_ && i == 0;
      end = flow ? recording_->segments.back() : chain_end(i);
      next = serial_end(end);
      const Stopwatch watch(counting);
      if (flow) run_flow(member, counting);
      else if (end > i + 1) run_chain(i, end, member, counting);
      else run_phase(i, member);
      const int64_t busy = watch.nanoseconds();
      if (end < count) {
        Ahead ahead = ahead_of(next, member);
        pool_->barrier([&] { run_serial(end, next); }, [&] { ahead.fetch(); });
      }
      if (!counting) continue;
      if (end == i + 1) counts_[i].nanoseconds += busy;   // a chain has counted its blocks
      waiting_.nanoseconds += watch.nanoseconds() - busy - (end < next ? serial_nanoseconds_ : 0);
      waiting_.runs += 1;
      for (int32_t phase = i; phase < next; ++phase) count_run(phase);
    }
  });
}

// One past the last phase that runs together with phase i: enough rows for all members make a chain of it.
int32_t Executor::chain_end(int32_t i) const {
  const Phase& phase = phase_at(i);
  const int32_t members = pool_->size();
  return members == 1 || row_count(phase.rows) >= phase.chain_rows * members ? phase.chain_end : i + 1;
}

// One past the last of the phases from i on that are so short that the member which comes last to a barrier runs them there:
// a barrier costs about what sharing two rows would gain. A sort is for one member alone.
int32_t Executor::serial_end(int32_t i) const {
  for (; i < num_phases(); ++i) {
    const Phase& phase = phase_at(i);
    if (phase.op != OpCode::sort_routes && !(is_row_local(phase.op) && row_count(phase.rows) <= kSerialRows)) break;
  }
  return i;
}

// On any member, while the others wait: nobody else touches the counts.
void Executor::run_serial(int32_t begin, int32_t end) {
  serial_nanoseconds_ = 0;
  for (int32_t i = begin; i < end; ++i) {
    const Stopwatch watch(!counts_.empty());
    if (phase_at(i).op == OpCode::sort_routes) sort_routes(head_of(i));
    else run_block(phase_at(i), {0, row_count(phase_at(i).rows)});
    if (counts_.empty()) continue;
    counts_[i].nanoseconds += watch.nanoseconds();
    serial_nanoseconds_ += watch.nanoseconds();
  }
}

// The items of a phase that a member takes first, when it has `count`.
Executor::Task Executor::share_of(int32_t count, int member) const {
  const int64_t members = pool_->size(), items = count;
  return {static_cast<int32_t>(member * items / members), static_cast<int32_t>((member + 1) * items / members)};
}

// The next task of a phase: `step` of its `count` items, from the member's own share as long as it lasts, then from those of
// the others. A member gets the same rows in every phase that way, and finds them in its cache. The last items come first:
// prompts follow the decoding sequences in a batch, so that the small tasks are left for an even finish. False when none is
// left.
bool Executor::take(int32_t phase, int32_t count, int32_t step, int member, Task* task) {
  const int members = pool_->size();
  for (int i = 0; i < members; ++i) {
    const int owner = (member + i) % members;
    const Task share = share_of(count, owner);
    std::atomic<int32_t>& taken = counter(phase, owner);
    if (share.last - taken.load(std::memory_order_relaxed) <= share.first) continue;
    task->last = share.last - taken.fetch_add(step, std::memory_order_relaxed);
    task->first = std::max(task->last - step, share.first);
    if (task->last > share.first) return true;
  }
  return false;
}

int32_t Executor::block_rows() const {
  const int32_t share = divide_up(step_.num_tokens, pool_->size());
  return std::min(divide_up(share, std::max(share / kSharedBlockRows, 1)), kMaxBlockRows);
}

// Blocks of rows go through all phases of a chain on one member: between products nothing is waited for, and what one phase
// writes the next one finds in the same core's cache. It gains most where two cores share no cache.
void Executor::run_chain(int32_t begin, int32_t end, int member, bool counting) {
  const int32_t rows = row_count(phase_at(begin).rows);
  for (Task block; take(begin, rows, block_rows(), member, &block);) {
    for (int32_t i = begin; i < end; ++i) {
      const Stopwatch watch(counting);
      run_block(phase_at(i), block);
      if (counting) counts_[i].nanoseconds += watch.nanoseconds();
    }
  }
}

void Executor::run_block(const Phase& phase, Task rows) const {
  const Instruction& head = recording_->instructions[phase.first];
  if (phase.op == OpCode::gemm) return multiply_block(head, rows);
  for (int32_t i = phase.first; i < phase.last; ++i) run_rows(recording_->instructions[i], rows.first, rows.last);
}

void Executor::run_phase(int32_t index, int member) {
  const Phase& phase = phase_at(index);
  if (phase.op == OpCode::gemm) return run_gemm(index, member);
  if (phase.op == OpCode::attention) return run_attention(index, member);
  if (phase.op == OpCode::sort_routes) {   // not behind a barrier: it was emitted alone
    if (member == 0) sort_routes(head_of(index));
    return;
  }
  const int32_t rows = row_count(phase.rows);
  const int32_t step = std::clamp(divide_up(rows, 2 * pool_->size()), 1, kMaxRowsPerTask);
  for (Task block; take(index, rows, step, member, &block);) run_block(phase, block);
}

void Executor::run_rows(const Instruction& in, int32_t first, int32_t last) const {
  int64_t lda = 0, ldb = 0, ldout = 0;
  const float* a = !in.inputs.empty() ? address(in.inputs[0], &lda) : nullptr;
  const float* b = in.inputs.size() > 1 ? address(in.inputs[1], &ldb) : nullptr;
  float* out = !in.outputs.empty() ? address(in.outputs[0], &ldout) : nullptr;
  const int32_t cols = !in.inputs.empty() ? in.inputs[0].cols : 0;
  const ElementArgs element{a, b, out, lda, ldb, ldout, cols, first, last, in.scalar};
  switch (in.op) {
    case OpCode::embedding:
      kernels_->embedding({&in.weight().parts[0].matrix, indices_of(in.index), out, ldout, in.scalar, first, last});
      return;
    case OpCode::quantise:
      kernels_->quantise({a, lda, rounded_[in.rounded].rows, first, last,
                          in.ordered_by != nullptr ? in.ordered_by->column_order.data() : nullptr});
      return;
    case OpCode::rms_norm:
      kernels_->rms_norm({a, in.vector->data.as<float>(), nullptr, out, lda, ldout, in.vector->size, cols / in.vector->size,
                          first, last, in.scalar});
      return;
    case OpCode::layer_norm:
      kernels_->layer_norm({a, in.vector->data.as<float>(), in.bias->data.as<float>(), out, lda, ldout, in.vector->size, 1,
                            first, last, in.scalar});
      return;
    case OpCode::rope:
      kernels_->rope({a, out, in.rope->cos.as<float>(), in.rope->sin.as<float>(), step_.positions, lda, ldout,
                      cols / in.head_dim, in.head_dim, 2 * in.rope->half, first, last});
      return;
    case OpCode::kv_write: {
      const int32_t layer = in.attention.layer;
      kernels_->kv_write({a, b, cache_->keys(layer), cache_->values(layer), step_.slots, lda, ldb,
                          static_cast<int64_t>(cache_->block_bytes()), cache_->kind, cache_->num_kv_heads, cache_->head_dim,
                          cache_->block_size, first, last});
      return;
    }
    case OpCode::select_rows:
      for (int32_t r = first; r < last; ++r)
        std::memcpy(out + r * ldout, a + step_.logit_rows[r] * lda, cols * sizeof(float));
      return;
    case OpCode::add: kernels_->add(element); return;
    case OpCode::silu_mul: kernels_->silu_mul(element); return;
    case OpCode::gelu_mul: kernels_->gelu_mul(element); return;
    case OpCode::gelu: kernels_->gelu(element); return;
    case OpCode::softcap: kernels_->softcap(element); return;
    case OpCode::scale: kernels_->scale(element); return;
    case OpCode::gate_rows: kernels_->gate_rows(element); return;
    case OpCode::route:
      kernels_->route({a, out, lda, ldout, recording_->num_experts, in.route.top_k, in.route.renormalise, first, last});
      return;
    case OpCode::dispatch:
      for (int32_t r = first; r < last; ++r) std::memcpy(out + r * ldout, a + routing_.token_of(r) * lda, cols * sizeof(float));
      return;
    case OpCode::combine:
      kernels_->combine({a, b, routing_.rows(), out, lda, ldb, ldout, cols, recording_->top_k, first, last});
      return;
    case OpCode::gemm:
    case OpCode::attention:
    case OpCode::sort_routes: return;   // phases of their own
  }
}

const int32_t* Executor::indices_of(IndexKind kind) const {
  switch (kind) {
    case IndexKind::token: return step_.token_ids;
    case IndexKind::position: return step_.positions;
    case IndexKind::zero: break;
  }
  return zeros_.data();
}

// The next task of a product by panels, from the member's own share as long as it lasts: its first panels are known before the
// product begins (see ahead_of). False when none is left.
bool Executor::take_panels(int32_t phase, int32_t panels, int member, Task* task) {
  const int members = pool_->size();
  for (int i = 0; i < members; ++i) {
    const int owner = (member + i) % members;
    const Task share = share_of(panels, owner);
    const int32_t helpers = i == 0 ? 1 : members;   // who takes from another share leaves some to its owner
    std::atomic<int32_t>& taken = counter(phase, owner);
    int32_t begin = taken.load(std::memory_order_relaxed), size = 0;
    do {
      const int32_t left = share.last - share.first - begin;
      if (left <= 0) break;
      const int32_t part = left * kShareNumerator / (kShareDenominator * helpers);
      size = std::min(std::max(part + (part & 1), kMinPanelsPerTask), left);
    } while (!taken.compare_exchange_weak(begin, begin + size, std::memory_order_relaxed));
    if (size == 0 || share.first + begin >= share.last) continue;
    *task = {share.first + begin, share.first + begin + size};
    return true;
  }
  return false;
}

int32_t Executor::panels_of(const Instruction& in) {
  int32_t panels = 0;
  for (const Part& part : in.weight().parts) panels += part.matrix.panels;
  return panels;
}

// Tasks are ranges of panels, counted through all parts of the weight, and through the experts that have rows.
void Executor::run_gemm(int32_t phase, int member) {
  const Instruction& in = head_of(phase);
  const int32_t rows = row_count(in.rows);
  if (rows == 0) return;
  const int32_t panels = panels_of(in);
  if (in.rows != RowKind::routed) {
    for (Task task; take_panels(phase, panels, member, &task);) multiply(in, in.weight(), {0, rows}, task);
    return;
  }
  for (Task task; take_panels(phase, panels * routing_.num_active(), member, &task);) {
    for (int32_t i = task.first / panels; i * panels < task.last; ++i) {
      const Task own{std::max(task.first - i * panels, 0), std::min(task.last - i * panels, panels)};
      multiply(in, *in.weights[routing_.expert(i)], {routing_.first_row(i), routing_.last_row(i)}, own);
    }
  }
}

// Some rows of a product.
void Executor::multiply_block(const Instruction& in, Task rows) const {
  const Task panels{0, panels_of(in)};
  if (in.rows != RowKind::routed) return multiply(in, in.weight(), rows, panels);
  for (int32_t i = 0; i < routing_.num_active(); ++i) {
    const Task own{std::max(rows.first, routing_.first_row(i)), std::min(rows.last, routing_.last_row(i))};
    if (own.first < own.last) multiply(in, *in.weights[routing_.expert(i)], own, panels);
  }
}

void Executor::sort_routes(const Instruction& in) {
  int64_t stride = 0;
  const float* const ids = address(in.inputs[0], &stride);
  routing_.sort(ids, stride, step_.num_tokens, recording_->top_k, recording_->num_experts);
}

// What a member can fetch before phase `phase` begins: the panels that it will need first of the first product from there on.
Ahead Executor::ahead_of(int32_t phase, int member) const {
  const int32_t product = phase < num_phases() ? phase_at(phase).product : num_phases();
  if (product == num_phases()) return {};
  const Instruction& in = head_of(product);
  if (in.rows == RowKind::routed) return {};   // the experts are not known yet
  const bool chained = chain_end(product) > product + 1;   // by rows: everybody begins at panel 0
  Task share = chained ? Task{0, panels_of(in)} : share_of(panels_of(in), member);
  for (const Part& part : in.weight().parts) {
    if (share.first < part.matrix.panels) return {part.matrix, share.first, std::min(share.last, part.matrix.panels)};
    share.first -= part.matrix.panels;
    share.last -= part.matrix.panels;
  }
  return {};
}

// Some rows and panels of a product with one weight.
void Executor::multiply(const Instruction& in, const Linear& weight, Task rows, Task panels) const {
  int64_t lda = 0, ldr = 0, ldout = 0;
  const float* x = address(in.inputs[0], &lda);
  const float* residual = in.has_residual() ? address(in.inputs[1], &ldr) : nullptr;
  float* out = address(in.outputs[0], &ldout);
  int32_t base = 0;
  for (const Part& part : weight.parts) {
    const int32_t begin = std::max(panels.first - base, 0), end = std::min(panels.last - base, part.matrix.panels);
    if (begin < end) {
      kernels_->gemm({&part.matrix, x, part.is_quantised() ? &rounded_[in.rounded].rows : nullptr, out + part.out_column,
                      residual != nullptr ? residual + part.out_column : nullptr, lda, ldout, ldr, rows.first, rows.last, begin,
                      end});
    }
    base += part.matrix.panels;
  }
}

// What all attention of a sequence's rows in one layer has in common.
AttentionArgs Executor::attention_args(const Instruction& in, int32_t sequence, int member) const {
  const AttentionLayer& layer = in.attention;
  const int64_t row = step_.query_start[sequence];
  AttentionArgs args{};
  args.q = address(in.inputs[0], &args.ldq);
  args.out = address(in.outputs[0], &args.ldo);
  args.q += row * args.ldq;
  args.out += row * args.ldo;
  args.k_cache = cache_->keys(layer.layer);
  args.v_cache = cache_->values(layer.layer);
  args.block_stride = static_cast<int64_t>(cache_->block_bytes());
  args.block_table = step_.block_tables + static_cast<int64_t>(sequence) * step_.max_blocks;
  args.scratch = scratch_[member].as<float>();
  args.kv_kind = cache_->kind;
  args.num_heads = layer.num_heads;
  args.num_kv_heads = layer.num_kv_heads;
  args.head_dim = layer.head_dim;
  args.block_size = cache_->block_size;
  args.first_position = step_.first_position[sequence];
  args.window = layer.window;
  args.num_keys = layer.causal ? 0 : args.first_position + step_.query_start[sequence + 1] - step_.query_start[sequence];
  args.scale = layer.scale;
  args.softcap = layer.softcap;
  return args;
}

// All positions that a sequence's rows see.
NextAttention Executor::seen_by(const AttentionLayer& layer, int32_t sequence, int32_t kv_head) const {
  const int32_t first = step_.first_position[sequence];
  const int32_t tokens = step_.query_start[sequence + 1] - step_.query_start[sequence];
  return {step_.block_tables + static_cast<int64_t>(sequence) * step_.max_blocks, kv_head, oldest_seen(first, layer.window),
          first + tokens};
}

void Executor::run_attention(int32_t phase, int member) {
  const Instruction& in = head_of(phase);
  AttentionPlan& plan = plan_for(in.attention);
  const int32_t count = static_cast<int32_t>(plan.tasks().size());
  for (Task next; take(phase, count, 1, member, &next);) {
    const AttentionTask& task = plan.tasks()[next.first];
    AttentionArgs args = attention_args(in, task.sequence, member);
    plan.fill(task, &args);
    if (next.first > 0) {   // tasks are taken from the end
      const AttentionTask& after = plan.tasks()[next.first - 1];
      args.next = seen_by(in.attention, after.sequence, after.kv_head);
      if (after.cut >= 0) args.next.begin = after.split_begin * kKvSplit;
    }
    kernels_->attention(args);
    if (plan.ends_tile(task, &args)) kernels_->attention_merge(args);
  }
}

}  // namespace octavo
