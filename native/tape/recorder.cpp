#include "tape/recorder.h"

#include <utility>

namespace octavo {

Recorder::Recorder(std::shared_ptr<const KvCache> cache, std::function<void()> emitted)
    : cache_(std::move(cache)), emitted_(std::move(emitted)) {}

Instruction Recorder::instruction(OpCode op, RowKind rows, std::vector<View> inputs) const {
  Instruction in;
  in.op = op;
  in.rows = rows;
  in.inputs = std::move(inputs);
  return in;
}

void Recorder::emit(Instruction instruction) {
  recording_->instructions.push_back(std::move(instruction));
  if (emitted_) emitted_();
}

// Emits an instruction that writes a new buffer. Each buffer has a slot of its own until the recording is sealed.
View Recorder::emit(Instruction instruction, int32_t cols) {
  Recording& recording = *recording_;
  const View out{static_cast<int32_t>(recording.buffers.size()), 0, cols};
  recording.buffers.push_back({cols, instruction.rows, static_cast<int32_t>(recording.slots.size())});
  recording.slots.push_back({cols, instruction.rows});
  instruction.outputs.push_back(out);
  emit(std::move(instruction));
  return out;
}

View Recorder::embedding(std::shared_ptr<const Linear> table, float scale, IndexKind index) {
  Instruction in = instruction(OpCode::embedding, RowKind::tokens, {});
  in.scalar = scale;
  in.index = index;
  const int32_t cols = table->cols;
  in.weights.push_back(std::move(table));
  return emit(std::move(in), cols);
}

// The slot that holds x rounded to int8 in groups of `group` columns (0: whole rows); rounds it now unless the slot still holds
// it (one norm feeds several products). order: null, or the weight whose column_order the columns are taken in.
int32_t Recorder::quantise(View x, int32_t group, std::shared_ptr<const Linear> order) {
  std::vector<RoundedSlot>& slots = recording_->rounded;
  const RowKind kind = kind_of(x);
  size_t id = 0;
  while (id < slots.size() && !(slots[id].cols == x.cols && slots[id].kind == kind && slots[id].group == group)) ++id;
  if (id == slots.size()) {
    slots.push_back({x.cols, kind, group});
    holds_.push_back({});
  }
  if (!(holds_[id].x == x && holds_[id].order == order.get())) {
    holds_[id] = {x, order.get()};
    Instruction in = instruction(OpCode::quantise, kind, {x});
    in.rounded = static_cast<int32_t>(id);
    in.ordered_by = std::move(order);
    emit(std::move(in));
  }
  return static_cast<int32_t>(id);
}

View Recorder::linear(View x, std::shared_ptr<const Linear> weight) { return experts(x, {std::move(weight)}); }

// A product; with rows sorted by expert, each with its own expert's weight, which are all held alike.
View Recorder::experts(View x, std::vector<std::shared_ptr<const Linear>> weights) {
  Instruction in = instruction(OpCode::gemm, kind_of(x), {x});
  for (const Part& part : weights.front()->parts)
    if (part.is_quantised())
      in.rounded = quantise(x, activation_group(part.matrix), weights.front()->column_order.empty() ? nullptr : weights.front());
  const int32_t cols = weights.front()->rows;
  in.weights = std::move(weights);
  return emit(std::move(in), cols);
}

View Recorder::gate_rows(View x, View gate) { return emit(instruction(OpCode::gate_rows, kind_of(x), {x, gate}), x.cols); }

View Recorder::route(View logits, RouteRule rule) {
  Instruction in = instruction(OpCode::route, kind_of(logits), {logits});
  in.route = rule;
  recording_->top_k = rule.top_k;
  recording_->num_experts = logits.cols;
  return emit(std::move(in), 2 * rule.top_k);
}

View Recorder::dispatch(View x, View routes) {
  emit(instruction(OpCode::sort_routes, RowKind::routed, {routes}));
  return emit(instruction(OpCode::dispatch, RowKind::routed, {x}), x.cols);
}

View Recorder::combine(View x, View routes) {
  return emit(instruction(OpCode::combine, RowKind::tokens, {x, routes}), x.cols);
}

View Recorder::rms_norm(View x, std::shared_ptr<const Vector> weight, float eps) {
  Instruction in = instruction(OpCode::rms_norm, kind_of(x), {x});
  in.vector = std::move(weight);
  in.scalar = eps;
  return emit(std::move(in), x.cols);
}

View Recorder::layer_norm(View x, std::shared_ptr<const Vector> weight, std::shared_ptr<const Vector> bias, float eps) {
  Instruction in = instruction(OpCode::layer_norm, kind_of(x), {x});
  in.vector = std::move(weight);
  in.bias = std::move(bias);
  in.scalar = eps;
  return emit(std::move(in), x.cols);
}

View Recorder::add(View a, View b) { return emit(instruction(OpCode::add, kind_of(a), {a, b}), a.cols); }

View Recorder::rope(View x, std::shared_ptr<const RopeTable> table, int32_t head_dim) {
  Instruction in = instruction(OpCode::rope, kind_of(x), {x});
  in.rope = std::move(table);
  in.head_dim = head_dim;
  return emit(std::move(in), x.cols);
}

void Recorder::kv_write(View k, View v, const AttentionLayer& layer) {
  Instruction in = instruction(OpCode::kv_write, kind_of(k), {k, v});
  in.attention = layer;
  emit(std::move(in));
}

View Recorder::attention(View q, const AttentionLayer& layer) {
  Instruction in = instruction(OpCode::attention, kind_of(q), {q});
  in.attention = layer;
  return emit(std::move(in), q.cols);
}

View Recorder::gated(OpCode op, View gate_up) {
  const int32_t half = gate_up.cols / 2;
  const View gate{gate_up.buffer, gate_up.column, half}, up{gate_up.buffer, gate_up.column + half, half};
  return emit(instruction(op, kind_of(gate_up), {gate, up}), half);
}

View Recorder::gelu(View x) { return emit(instruction(OpCode::gelu, kind_of(x), {x}), x.cols); }

View Recorder::select_rows(View x) { return emit(instruction(OpCode::select_rows, RowKind::logits, {x}), x.cols); }

View Recorder::softcap(View x, float cap) {
  Instruction in = instruction(OpCode::softcap, kind_of(x), {x});
  in.scalar = cap;
  return emit(std::move(in), x.cols);
}

View Recorder::scale(View x, float factor) {
  Instruction in = instruction(OpCode::scale, kind_of(x), {x});
  in.scalar = factor;
  return emit(std::move(in), x.cols);
}

std::shared_ptr<const Recording> Recorder::seal(View logits, View hidden) {
  octavo::seal(*recording_, logits, hidden);
  return std::exchange(recording_, std::make_shared<Recording>());
}

void Recorder::clear() {
  recording_->buffers.clear();
  recording_->slots.clear();
  recording_->instructions.clear();
  holds_.assign(holds_.size(), {});
}

}  // namespace octavo
