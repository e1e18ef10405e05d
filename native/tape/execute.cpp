// Executing: phases on the thread pool. Members take tasks from a counter; which member runs a task never shows in a result.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "tape/program.h"

namespace octavo {
namespace {

// Rows a member takes at a time in row-local phases: few enough to share the work, enough to amortise the counter.
constexpr int32_t kMaxRowsPerTask = 16;
// Tasks per member in a product: enough for an even split when a member loses its core for a while.
constexpr int32_t kTasksPerMember = 6;
constexpr int32_t kMinPanelsPerTask = 2;

int32_t divide_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

}  // namespace

float* Program::address(View view, int64_t* stride) const {
  const Slot& slot = slots_[buffers_[view.buffer].slot];
  *stride = slot.stride;
  return slot.memory.as<float>() + view.column;
}

const float* Program::read(View view, int64_t* stride) const { return address(view, stride); }

void Program::run(const StepArrays& step) {
  step_ = step;
  for (AttentionPlan& plan : attention_plans_) plan.list(step_);
  run_phases();
}

void Program::run_phases() {
  for (std::atomic<int32_t>& counter : counters_) counter.store(0, std::memory_order_relaxed);
  pool_->run([this](int member) {
    const size_t count = phases_.size();
    const bool counting = member == 0 && !counts_.empty();
    for (size_t i = 0; i < count; ++i) {
      const auto start = counting ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
      run_phase(phases_[i], counters_[i], member);
      if (i + 1 < count) pool_->barrier();
      if (counting) count_phase(i, std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
    }
  });
}

void Program::run_phase(const Phase& phase, std::atomic<int32_t>& next, int member) {
  const Instruction& head = instructions_[phase.first];
  if (head.op == OpCode::gemm) return run_gemm(head, next);
  if (head.op == OpCode::attention) return run_attention(head, next, member);
  const int32_t rows = row_count(phase.rows);
  const int32_t step = std::clamp(divide_up(rows, 2 * pool_->size()), 1, kMaxRowsPerTask);
  for (;;) {
    const int32_t first = next.fetch_add(step, std::memory_order_relaxed);
    if (first >= rows) return;
    const int32_t last = std::min(first + step, rows);
    for (int32_t i = phase.first; i < phase.last; ++i) run_rows(instructions_[i], first, last);
  }
}

void Program::run_rows(const Instruction& in, int32_t first, int32_t last) const {
  int64_t lda = 0, ldb = 0, ldout = 0;
  const float* a = in.a.buffer >= 0 ? address(in.a, &lda) : nullptr;
  const float* b = in.b.buffer >= 0 ? address(in.b, &ldb) : nullptr;
  float* out = in.out.buffer >= 0 ? address(in.out, &ldout) : nullptr;
  const ElementArgs element{a, b, out, lda, ldb, ldout, in.a.cols, first, last, in.scalar};
  switch (in.op) {
    case OpCode::embedding:
      kernels_->embedding({&in.linear->parts[0].matrix, step_.token_ids, out, ldout, in.scalar, first, last});
      return;
    case OpCode::quantise: kernels_->quantise({a, lda, quant_slots_[in.quant].rows, first, last}); return;
    case OpCode::rms_norm:
      kernels_->rms_norm({a, in.vector->data.as<float>(), out, lda, ldout, in.vector->size, in.a.cols / in.vector->size, first,
                          last, in.scalar});
      return;
    case OpCode::rope:
      kernels_->rope({a, out, in.rope->cos.as<float>(), in.rope->sin.as<float>(), step_.positions, lda, ldout,
                      in.a.cols / in.head_dim, in.head_dim, 2 * in.rope->half, first, last});
      return;
    case OpCode::kv_write: {
      const int32_t layer = in.attention.layer;
      kernels_->kv_write({a, b, cache_->keys[layer].as<void>(), cache_->values[layer].as<void>(), step_.slots, lda, ldb,
                          cache_->kind, cache_->num_kv_heads, cache_->head_dim, cache_->block_size, first, last});
      return;
    }
    case OpCode::select_rows:
      for (int32_t r = first; r < last; ++r)
        std::memcpy(out + r * ldout, a + step_.logit_rows[r] * lda, in.a.cols * sizeof(float));
      return;
    case OpCode::add: kernels_->add(element); return;
    case OpCode::silu_mul: kernels_->silu_mul(element); return;
    case OpCode::gelu_mul: kernels_->gelu_mul(element); return;
    case OpCode::softcap: kernels_->softcap(element); return;
    case OpCode::gemm:
    case OpCode::attention: return;   // phases of their own
  }
}

// Tasks are ranges of panels, counted through all parts of the weight.
void Program::run_gemm(const Instruction& in, std::atomic<int32_t>& next) const {
  const int32_t rows = row_count(in.rows);
  if (rows == 0) return;
  int64_t lda = 0, ldr = 0, ldout = 0;
  const float* x = address(in.a, &lda);
  const float* residual = in.b.buffer >= 0 ? address(in.b, &ldr) : nullptr;
  float* out = address(in.out, &ldout);
  int32_t panels = 0;
  for (const Part& part : in.linear->parts) panels += part.matrix.panels;
  int32_t step = std::max(kMinPanelsPerTask, divide_up(panels, kTasksPerMember * pool_->size()));
  step += step & 1;
  for (;;) {
    const int32_t first = next.fetch_add(step, std::memory_order_relaxed);
    if (first >= panels) return;
    const int32_t last = std::min(first + step, panels);
    int32_t base = 0;
    for (const Part& part : in.linear->parts) {
      const int32_t begin = std::max(first - base, 0), end = std::min(last - base, part.matrix.panels);
      if (begin < end) {
        kernels_->gemm({&part.matrix, x, part.is_quantised() ? &quant_slots_[in.quant].rows : nullptr, out + part.out_column,
                        residual != nullptr ? residual + part.out_column : nullptr, lda, ldout, ldr, 0, rows, begin, end});
      }
      base += part.matrix.panels;
    }
  }
}

// The plan of the layer's kind; made when the first such layer is emitted.
AttentionPlan& Program::plan_for(const AttentionLayer& layer) {
  for (AttentionPlan& plan : attention_plans_)
    if (plan.serves(layer)) return plan;
  return attention_plans_.emplace_back(kernels_, layer, pool_->size());
}

void Program::run_attention(const Instruction& in, std::atomic<int32_t>& next, int member) {
  const AttentionLayer& layer = in.attention;
  AttentionPlan& plan = plan_for(layer);
  int64_t ldq = 0, ldo = 0;
  const float* q = address(in.a, &ldq);
  float* out = address(in.out, &ldo);
  const int32_t count = static_cast<int32_t>(plan.tasks().size());
  for (;;) {
    const int32_t index = next.fetch_add(1, std::memory_order_relaxed);
    if (index >= count) return;
    const AttentionTask& task = plan.tasks()[index];
    const int64_t row = step_.query_start[task.sequence];
    AttentionArgs args;
    plan.fill(task, &args);
    args.q = q + row * ldq;
    args.out = out + row * ldo;
    args.k_cache = cache_->keys[layer.layer].as<void>();
    args.v_cache = cache_->values[layer.layer].as<void>();
    args.block_table = step_.block_tables + static_cast<int64_t>(task.sequence) * step_.max_blocks;
    args.scratch = scratch_[member].as<float>();
    args.ldq = ldq;
    args.ldo = ldo;
    args.kv_kind = cache_->kind;
    args.num_heads = layer.num_heads;
    args.num_kv_heads = layer.num_kv_heads;
    args.head_dim = layer.head_dim;
    args.block_size = cache_->block_size;
    args.num_blocks = cache_->num_blocks;
    args.first_position = step_.first_position[task.sequence];
    args.window = layer.window;
    args.scale = layer.scale;
    args.softcap = layer.softcap;
    kernels_->attention(args);
    if (plan.ends_tile(task, &args)) kernels_->attention_merge(args);
  }
}

}  // namespace octavo
