#include "tape/executor.h"

#include <algorithm>
#include <stdexcept>

namespace octavo {
namespace {

void require_ids(const int32_t* ids, int32_t count, int32_t limit, const char* what) {
  const auto is_known = [limit](int32_t id) { return id >= 0 && id < limit; };
  const int32_t* const bad = std::find_if_not(ids, ids + count, is_known);
  if (bad == ids + count) return;
  throw std::invalid_argument(std::string(what) + " " + std::to_string(*bad) + " is outside [0, " +
                              std::to_string(limit) + ")");
}

}  // namespace

Executor::Executor(std::shared_ptr<ThreadPool> pool, const KernelTable* kernels, std::shared_ptr<KvCache> cache,
                   std::shared_ptr<const Recording> recording, int32_t max_tokens, int32_t max_logits)
    : pool_(std::move(pool)), kernels_(kernels), cache_(std::move(cache)), recording_(std::move(recording)),
      max_tokens_(max_tokens), max_logits_(max_logits), scratch_(pool_->size()) {
  for (const Slot& slot : recording_->slots)
    slots_.push_back(Block(static_cast<size_t>(max_rows(slot.kind)) * slot.stride * sizeof(float)));
  reserve_rounded();
  for (const Instruction& instruction : recording_->instructions) prepare(instruction);
  take_phases(recording_->phases);
}

void Executor::reserve_rounded() {
  while (rounded_.size() < recording_->rounded.size()) {
    const RoundedSlot& slot = recording_->rounded[rounded_.size()];
    const size_t values = static_cast<size_t>(max_rows(slot.kind)) * slot.cols;
    Rounded memory;
    memory.codes = Block(values);
    memory.scales = Block(values / (slot.group == 0 ? slot.cols : kActGroup) * sizeof(float));
    memory.sums = Block(values / (slot.group == 0 ? slot.cols : kSumGroup) * sizeof(int32_t));
    memory.products = Block(slot.group == 0 ? 0 : values / kActGroup * sizeof(float));
    memory.rows = {memory.codes.as<int8_t>(), memory.scales.as<float>(), memory.sums.as<int32_t>(),
                   memory.products.as<float>(), slot.cols, slot.group};
    rounded_.push_back(std::move(memory));
  }
}

// What an instruction needs besides its buffers.
void Executor::prepare(const Instruction& in) {
  if (in.op == OpCode::embedding) {
    if (in.index == IndexKind::token) token_limit_ = std::min(token_limit_, in.weight().rows);
    if (in.index == IndexKind::position) position_limit_ = std::min(position_limit_, in.weight().rows);
    if (in.index == IndexKind::zero) zeros_.resize(static_cast<size_t>(max_tokens_));
  }
  if (in.op == OpCode::sort_routes) routing_.reserve(max_tokens_, recording_->top_k, recording_->num_experts);
  if (in.op != OpCode::attention) return;
  const AttentionLayer& layer = in.attention;
  const int64_t floats = kernels_->attention_scratch(layer.num_heads, layer.num_kv_heads, layer.head_dim);
  if (floats > scratch_floats_) {
    scratch_floats_ = floats;
    for (Block& block : scratch_) block = Block(static_cast<size_t>(floats) * sizeof(float));
  }
  plan_for(layer);
}

void Executor::take_phases(const std::vector<Phase>& phases) {
  phases_ = &phases;
  counters_ = std::vector<std::atomic<int32_t>>(phases.size() * static_cast<size_t>(pool_->size()));
}

size_t Executor::buffer_bytes() const {
  size_t total = 0;
  for (const Block& slot : slots_) total += slot.bytes();
  for (const Rounded& slot : rounded_)
    total += slot.codes.bytes() + slot.scales.bytes() + slot.sums.bytes() + slot.products.bytes();
  return total;
}

float* Executor::address(View view, int64_t* stride) const {
  const int32_t slot = recording_->buffers[view.buffer].slot;
  *stride = recording_->slots[slot].stride;
  return slots_[slot].as<float>() + view.column;
}

void Executor::run(const StepArrays& step) {
  step_ = step;
  const int32_t rows = block_rows(), segments = static_cast<int32_t>(recording_->segments.size()) - 1;
  flows_ = pool_->size() > 1 && segments > 1 && recording_->causal &&
           step_.num_tokens >= recording_->flow_rows * pool_->size() && is_even(rows);
  if (flows_) flow_.cut(step_, rows, segments);
  for (AttentionPlan& plan : attention_plans_) plan.list(step_);   // a tape may attend again behind what flows
  run_phases();
}

void Executor::begin(const StepArrays& step) {
  step_ = step;
  slots_.clear();
}

void Executor::run_latest() {
  while (slots_.size() < recording_->slots.size()) {
    const Slot& slot = recording_->slots[slots_.size()];
    slots_.push_back(Block(static_cast<size_t>(std::max(row_count(slot.kind), 1)) * slot.stride * sizeof(float)));
  }
  reserve_rounded();
  const Instruction& in = recording_->instructions.back();
  prepare(in);
  if (in.op == OpCode::embedding && in.index == IndexKind::token)
    require_ids(step_.token_ids, step_.num_tokens, in.weight().rows, "token id");
  if (in.op == OpCode::embedding && in.index == IndexKind::position)
    require_ids(step_.positions, step_.num_tokens, in.weight().rows, "position");
  if (in.op == OpCode::attention) plan_for(in.attention).list(step_);
  const int32_t end = static_cast<int32_t>(recording_->instructions.size());
  latest_.assign(1, {end - 1, end, in.rows, in.op, 1, 0});
  take_phases(latest_);
  run_phases();
}

// The plan of the layer's kind; made when the first such layer is emitted.
AttentionPlan& Executor::plan_for(const AttentionLayer& layer) {
  for (AttentionPlan& plan : attention_plans_)
    if (plan.serves(layer)) return plan;
  return attention_plans_.emplace_back(kernels_, layer, pool_->size());
}

}  // namespace octavo
