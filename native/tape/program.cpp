// Emitting: from model operations to instructions.
#include "tape/program.h"

#include <algorithm>

namespace octavo {

Program::Program(std::shared_ptr<ThreadPool> pool, const KernelTable* kernels, std::shared_ptr<KvCache> cache,
                 int32_t max_tokens, int32_t max_logits, bool immediate)
    : pool_(std::move(pool)), kernels_(kernels), cache_(std::move(cache)), max_tokens_(max_tokens), max_logits_(max_logits),
      immediate_(immediate), scratch_(pool_->size()) {}

View Program::new_view(int32_t cols, RowKind kind) {
  buffers_.push_back({cols, kind});
  const int32_t id = static_cast<int32_t>(buffers_.size()) - 1;
  if (immediate_) {
    slots_.push_back({cols, kind, Block(static_cast<size_t>(std::max(row_count(kind), 1)) * cols * sizeof(float))});
    buffers_[id].slot = static_cast<int32_t>(slots_.size()) - 1;
  }
  return {id, 0, cols};
}

void Program::emit(Instruction instruction) {
  if (instruction.op == OpCode::attention) {
    const AttentionLayer& layer = instruction.attention;
    const int64_t floats = kernels_->attention_scratch(layer.num_heads, layer.num_kv_heads, layer.head_dim);
    if (floats > scratch_floats_) {
      scratch_floats_ = floats;
      for (Block& block : scratch_) block = Block(static_cast<size_t>(floats) * sizeof(float));
    }
    AttentionPlan& plan = plan_for(layer);
    if (immediate_) plan.list(step_);
  }
  instructions_.push_back(std::move(instruction));
  if (!immediate_) return;
  const int32_t last = static_cast<int32_t>(instructions_.size());
  phases_.assign(1, {last - 1, last, instructions_.back().rows, instructions_.back().op, 1, 0});
  reset_counters();
  run_phases();
}

View Program::embedding(std::shared_ptr<const Linear> table, float scale) {
  Instruction in;
  in.op = OpCode::embedding;
  in.rows = RowKind::tokens;
  in.out = new_view(table->cols, in.rows);
  in.scalar = scale;
  token_limit_ = std::min(token_limit_, table->rows);
  in.linear = std::move(table);
  const View out = in.out;
  emit(std::move(in));
  return out;
}

// The slot that holds x rounded to int8 in groups of `group` columns (0: whole rows); rounds it now unless the slot still holds
// it (one norm feeds several products).
int32_t Program::quantise(View x, int32_t group) {
  const RowKind kind = kind_of(x);
  int32_t id = 0;
  const int32_t count = static_cast<int32_t>(quant_slots_.size());
  const auto fits = [&](const QuantSlot& slot) { return slot.cols == x.cols && slot.kind == kind && slot.rows.group == group; };
  while (id < count && !fits(quant_slots_[id])) ++id;
  if (id == count) {
    QuantSlot slot;
    slot.cols = x.cols;
    slot.kind = kind;
    const size_t values = static_cast<size_t>(max_rows(kind)) * x.cols;
    slot.codes = Block(values);
    slot.scales = Block(values / (group == 0 ? x.cols : kActGroup) * sizeof(float));
    slot.sums = Block(values / (group == 0 ? x.cols : kSumGroup) * sizeof(int32_t));
    slot.products = Block(group == 0 ? 0 : values / kActGroup * sizeof(float));
    slot.rows = {slot.codes.as<int8_t>(), slot.scales.as<float>(), slot.sums.as<int32_t>(), slot.products.as<float>(), x.cols,
                 group};
    quant_slots_.push_back(std::move(slot));
  }
  if (quant_slots_[id].holds == x) return id;
  quant_slots_[id].holds = x;
  Instruction in;
  in.op = OpCode::quantise;
  in.rows = kind;
  in.a = x;
  in.quant = id;
  emit(std::move(in));
  return id;
}

View Program::linear(View x, std::shared_ptr<const Linear> weight) {
  Instruction in;
  in.op = OpCode::gemm;
  in.rows = kind_of(x);
  in.a = x;
  for (const Part& part : weight->parts)
    if (part.is_quantised()) in.quant = quantise(x, activation_group(part.matrix));
  in.out = new_view(weight->rows, in.rows);
  in.linear = std::move(weight);
  const View out = in.out;
  emit(std::move(in));
  return out;
}

View Program::rms_norm(View x, std::shared_ptr<const Vector> weight, float eps) {
  Instruction in;
  in.op = OpCode::rms_norm;
  in.rows = kind_of(x);
  in.a = x;
  in.out = new_view(x.cols, in.rows);
  in.vector = std::move(weight);
  in.scalar = eps;
  const View out = in.out;
  emit(std::move(in));
  return out;
}

View Program::add(View a, View b) {
  Instruction in;
  in.op = OpCode::add;
  in.rows = kind_of(a);
  in.a = a;
  in.b = b;
  in.out = new_view(a.cols, in.rows);
  const View out = in.out;
  emit(std::move(in));
  return out;
}

View Program::rope(View x, std::shared_ptr<const RopeTable> table, int32_t head_dim) {
  Instruction in;
  in.op = OpCode::rope;
  in.rows = kind_of(x);
  in.a = x;
  in.out = new_view(x.cols, in.rows);
  in.rope = std::move(table);
  in.head_dim = head_dim;
  const View out = in.out;
  emit(std::move(in));
  return out;
}

void Program::kv_write(View k, View v, const AttentionLayer& layer) {
  Instruction in;
  in.op = OpCode::kv_write;
  in.rows = kind_of(k);
  in.a = k;
  in.b = v;
  in.attention = layer;
  emit(std::move(in));
}

View Program::attention(View q, const AttentionLayer& layer) {
  Instruction in;
  in.op = OpCode::attention;
  in.rows = kind_of(q);
  in.a = q;
  in.out = new_view(q.cols, in.rows);
  in.attention = layer;
  const View out = in.out;
  emit(std::move(in));
  return out;
}

View Program::gated(OpCode op, View gate_up) {
  Instruction in;
  in.op = op;
  in.rows = kind_of(gate_up);
  const int32_t half = gate_up.cols / 2;
  in.a = {gate_up.buffer, gate_up.column, half};
  in.b = {gate_up.buffer, gate_up.column + half, half};
  in.out = new_view(half, in.rows);
  const View out = in.out;
  emit(std::move(in));
  return out;
}

View Program::select_rows(View x) {
  Instruction in;
  in.op = OpCode::select_rows;
  in.rows = RowKind::logits;
  in.a = x;
  in.out = new_view(x.cols, in.rows);
  const View out = in.out;
  emit(std::move(in));
  return out;
}

View Program::softcap(View x, float cap) {
  Instruction in;
  in.op = OpCode::softcap;
  in.rows = kind_of(x);
  in.a = x;
  in.out = new_view(x.cols, in.rows);
  in.scalar = cap;
  const View out = in.out;
  emit(std::move(in));
  return out;
}

void Program::begin(const StepArrays& step) {
  step_ = step;
  buffers_.clear();
  slots_.clear();
  instructions_.clear();
  for (QuantSlot& slot : quant_slots_) slot.holds = View{};
}

size_t Program::buffer_bytes() const {
  size_t total = 0;
  for (const Slot& slot : slots_) total += slot.memory.bytes();
  for (const QuantSlot& slot : quant_slots_)
    total += slot.codes.bytes() + slot.scales.bytes() + slot.sums.bytes() + slot.products.bytes();
  return total;
}

}  // namespace octavo
