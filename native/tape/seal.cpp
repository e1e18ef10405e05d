// Sealing a recording: residual fusion, buffer plan, phases.
#include <algorithm>

#include "tape/recording.h"

namespace octavo {
namespace {

// Rows per member from which on each of them reads the weights of a chain for itself, more where a value takes more bytes. A
// chain that no cache holds comes from memory for every member, which takes more rows to be worth it.
constexpr int32_t kChainRowsPerByte = 8;
constexpr int32_t kChainRowsPerByteFromMemory = 24;
constexpr size_t kCacheBytes = size_t{16} << 20;

int32_t bytes_per_value(const Linear& linear) {
  int32_t bytes = 1;
  for (const Part& part : linear.parts) {
    if (part.matrix.kind == WeightKind::f32) bytes = std::max(bytes, 4);
    else if (!part.is_quantised()) bytes = std::max(bytes, 2);
  }
  return bytes;
}

// gemm, add -> gemm with residual. The kernel adds the residual to the finished sum, so the bytes are those of two steps.
void fuse_residuals(Recording& recording) {
  std::vector<int32_t> uses(recording.buffers.size(), 0);
  for (const Instruction& in : recording.instructions)
    for (const View& view : in.inputs) ++uses[view.buffer];
  for (const View& output : {recording.logits, recording.hidden})
    if (output.buffer >= 0) ++uses[output.buffer];
  std::vector<Instruction> fused;
  for (Instruction& in : recording.instructions) {
    if (in.op == OpCode::add && !fused.empty() && fused.back().op == OpCode::gemm) {
      Instruction& gemm = fused.back();
      const View& product = gemm.outputs[0];
      const bool is_b = in.inputs[1] == product, is_a = in.inputs[0] == product;
      if (is_a != is_b && uses[product.buffer] == 1 && !gemm.has_residual()) {
        gemm.inputs.push_back(is_b ? in.inputs[0] : in.inputs[1]);
        gemm.outputs = in.outputs;
        continue;
      }
    }
    fused.push_back(std::move(in));
  }
  recording.instructions = std::move(fused);
}

// Gives every buffer a slot; a slot is free again after the last instruction that reads its buffer.
//
//   buffer 0  |def---use-----use|
//   buffer 1        |def--use|
//   buffer 2                     |def--use|      shares the slot of 0 or 1
//
// Without a barrier between the instructions (a phase, a chain, a flow) this is safe too: buffers of one slot have equal row
// strides and kinds, and each row passes through the instructions in order, on one thread after another at most.
void plan_buffers(Recording& recording) {
  const int32_t count = static_cast<int32_t>(recording.instructions.size());
  std::vector<Buffer>& buffers = recording.buffers;
  std::vector<Slot>& slots = recording.slots;
  std::vector<int32_t> last_use(buffers.size(), -1);
  for (int32_t i = 0; i < count; ++i)
    for (const View& view : recording.instructions[i].inputs) last_use[view.buffer] = i;
  const View& logits = recording.logits;
  for (const View& output : {logits, recording.hidden})
    if (output.buffer >= 0) last_use[output.buffer] = count;
  slots.clear();
  std::vector<int32_t> free_slots;
  for (int32_t i = 0; i < count; ++i) {
    const Instruction& in = recording.instructions[i];
    for (const View& view : in.outputs) {
      Buffer& buffer = buffers[view.buffer];
      // The logits keep a slot of their own so that their rows lie one after the other.
      auto fits = [&](int32_t slot) { return slots[slot].kind == buffer.kind; };
      auto found = view.buffer == logits.buffer ? free_slots.end() : std::find_if(free_slots.begin(), free_slots.end(), fits);
      if (found == free_slots.end()) {
        buffer.slot = static_cast<int32_t>(slots.size());
        slots.push_back({buffer.cols, buffer.kind});
      } else {
        buffer.slot = *found;
        slots[buffer.slot].stride = std::max(slots[buffer.slot].stride, buffer.cols);
        free_slots.erase(found);
      }
    }
    for (const View& view : in.inputs) {
      if (last_use[view.buffer] != i) continue;
      free_slots.push_back(buffers[view.buffer].slot);
      last_use[view.buffer] = -1;   // an instruction may read two views of it
    }
  }
}

void cut_phases(Recording& recording) {
  std::vector<Phase>& phases = recording.phases;
  for (int32_t i = 0; i < static_cast<int32_t>(recording.instructions.size()); ++i) {
    const Instruction& in = recording.instructions[i];
    const bool joins = !phases.empty() && is_row_local(in.op) && is_row_local(phases.back().op) &&
                       phases.back().rows == in.rows;
    if (joins) phases.back().last = i + 1;
    else phases.push_back({i, i + 1, in.rows, in.op});
  }
}

// Every phase but those that stand alone works on its rows alone, as long as rows of the same kind follow.
void link_chains(Recording& recording) {
  std::vector<Phase>& phases = recording.phases;
  const int32_t count = static_cast<int32_t>(phases.size());
  size_t bytes = 0;        // of the weights from phase i to the end of its chain
  int32_t per_value = 0;   // the most bytes that one of their values takes
  for (int32_t i = count - 1; i >= 0; --i) {
    Phase& phase = phases[i];
    const bool goes_on = i + 1 < count && !stands_alone(phase.op) && !stands_alone(phases[i + 1].op) &&
                         phases[i + 1].rows == phase.rows;
    if (!goes_on) bytes = per_value = 0;
    if (phase.op == OpCode::gemm) {
      const Linear& linear = recording.instructions[phase.first].weight();
      bytes += linear.bytes() * recording.instructions[phase.first].weights.size();
      per_value = std::max(per_value, bytes_per_value(linear));
    }
    phase.chain_end = goes_on ? phases[i + 1].chain_end : i + 1;
    phase.chain_rows = per_value * (bytes > kCacheBytes ? kChainRowsPerByteFromMemory : kChainRowsPerByte);
    phase.product = phase.op == OpCode::gemm ? i : i + 1 < count ? phases[i + 1].product : i + 1;
  }
}

// The phases of token rows, cut before each attention (see flow.h), and what they cost.
void cut_segments(Recording& recording) {
  const std::vector<Phase>& phases = recording.phases;
  std::vector<KeyCost>& key_costs = recording.key_costs;
  recording.segments.assign(1, 0);
  int32_t i = 0;
  for (; i < static_cast<int32_t>(phases.size()) && phases[i].rows == RowKind::tokens; ++i) {
    recording.flow_rows = std::max(recording.flow_rows, phases[i].chain_rows);
    const Instruction& in = recording.instructions[phases[i].first];
    if (in.op == OpCode::gemm) recording.token_macs += static_cast<double>(in.weight().rows) * in.weight().cols;
    if (in.op != OpCode::attention) continue;
    if (i > 0) recording.segments.push_back(i);
    const double macs = 2.0 * in.attention.num_heads * in.attention.head_dim;
    const auto same = [&](const KeyCost& cost) { return cost.window == in.attention.window; };
    const auto found = std::find_if(key_costs.begin(), key_costs.end(), same);
    if (found != key_costs.end()) found->macs += macs;
    else key_costs.push_back({in.attention.window, macs});
  }
  recording.segments.push_back(i);
}

}  // namespace

void seal(Recording& recording, View logits, View hidden) {
  recording.hidden = hidden;
  recording.logits = logits;
  for (const Instruction& in : recording.instructions)
    if (in.op == OpCode::attention && !in.attention.causal) recording.causal = false;
  fuse_residuals(recording);
  plan_buffers(recording);
  cut_phases(recording);
  link_chains(recording);
  cut_segments(recording);
}

}  // namespace octavo
