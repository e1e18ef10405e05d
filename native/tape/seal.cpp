// Sealing a tape: residual fusion, buffer plan, phases.
#include <algorithm>

#include "tape/program.h"

namespace octavo {
namespace {

void for_each_input(const Instruction& instruction, void (*visit)(void*, int32_t buffer), void* context) {
  if (instruction.a.buffer >= 0) visit(context, instruction.a.buffer);
  if (instruction.b.buffer >= 0) visit(context, instruction.b.buffer);
}

// Rows per member from which on each of them reads the weights of a chain for itself: 8 rows of 8-bit weights (290 GMAC/s by
// panels, 298 by rows; 263 with 4 rows), more where a value takes more bytes. A chain that no cache holds comes from memory for
// every member: four layers of 61 MB take 25 instead of 19 ms with 8 rows, 29 instead of 26 ms with 12, from 24 on the same.
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

}  // namespace

void Program::seal(View output) {
  fuse_residuals();
  plan_buffers(output);
  cut_phases();
  reset_counters();
}

// gemm, add -> gemm with residual. The kernel adds the residual to the finished sum, so the bytes are those of two steps.
void Program::fuse_residuals() {
  std::vector<int32_t> uses(buffers_.size(), 0);
  for (const Instruction& instruction : instructions_)
    for_each_input(instruction, [](void* context, int32_t b) { ++(*static_cast<std::vector<int32_t>*>(context))[b]; }, &uses);
  std::vector<Instruction> fused;
  for (Instruction& instruction : instructions_) {
    if (instruction.op == OpCode::add && !fused.empty() && fused.back().op == OpCode::gemm) {
      Instruction& gemm = fused.back();
      const bool is_b = instruction.b == gemm.out, is_a = instruction.a == gemm.out;
      if (is_a != is_b && uses[gemm.out.buffer] == 1 && gemm.b.buffer < 0) {
        gemm.b = is_b ? instruction.a : instruction.b;
        gemm.out = instruction.out;
        continue;
      }
    }
    fused.push_back(std::move(instruction));
  }
  instructions_ = std::move(fused);
}

// Gives every buffer a slot; a slot is free again after the last instruction that reads its buffer.
//
//   buffer 0  |def---use-----use|
//   buffer 1        |def--use|
//   buffer 2                     |def--use|      shares the slot of 0 or 1
//
// Without a barrier between the instructions (a phase, a chain, a flow) this is safe too: buffers of one slot have equal row
// strides and kinds, and each row passes through the instructions in order, on one thread after another at most.
void Program::plan_buffers(View output) {
  std::vector<int32_t> last_use(buffers_.size(), -1);
  for (int32_t i = 0; i < static_cast<int32_t>(instructions_.size()); ++i) {
    const Instruction& in = instructions_[i];
    for (const View& view : {in.a, in.b})
      if (view.buffer >= 0) last_use[view.buffer] = i;
  }
  last_use[output.buffer] = static_cast<int32_t>(instructions_.size());
  std::vector<int32_t> free_slots;
  for (int32_t i = 0; i < static_cast<int32_t>(instructions_.size()); ++i) {
    const Instruction& in = instructions_[i];
    if (in.out.buffer >= 0) {
      Buffer& buffer = buffers_[in.out.buffer];
      // The output keeps a slot of its own so that its rows lie one after the other.
      auto fits = [&](int32_t slot) { return slots_[slot].kind == buffer.kind; };
      auto found = in.out.buffer == output.buffer ? free_slots.end() : std::find_if(free_slots.begin(), free_slots.end(), fits);
      if (found == free_slots.end()) {
        slots_.push_back({buffer.cols, buffer.kind, Block()});
        buffer.slot = static_cast<int32_t>(slots_.size()) - 1;
      } else {
        buffer.slot = *found;
        slots_[buffer.slot].stride = std::max(slots_[buffer.slot].stride, buffer.cols);
        free_slots.erase(found);
      }
    }
    int32_t freed = -1;
    for (const View& view : {in.a, in.b}) {
      if (view.buffer < 0 || view.buffer == freed || last_use[view.buffer] != i) continue;
      free_slots.push_back(buffers_[view.buffer].slot);
      freed = view.buffer;
    }
  }
  for (Slot& slot : slots_) slot.memory = Block(static_cast<size_t>(max_rows(slot.kind)) * slot.stride * sizeof(float));
}

void Program::cut_phases() {
  phases_.clear();
  for (int32_t i = 0; i < static_cast<int32_t>(instructions_.size()); ++i) {
    const Instruction& in = instructions_[i];
    const bool joins = !phases_.empty() && is_row_local(in.op) && is_row_local(phases_.back().op) && phases_.back().rows == in.rows;
    if (joins) phases_.back().last = i + 1;
    else phases_.push_back({i, i + 1, in.rows, in.op});
  }
  link_chains();
  cut_segments();
}

// Every phase but attention works on its rows alone, as long as rows of the same kind follow.
void Program::link_chains() {
  size_t bytes = 0;        // of the weights from phase i to the end of its chain
  int32_t per_value = 0;   // the most bytes that one of their values takes
  for (int32_t i = num_phases() - 1; i >= 0; --i) {
    Phase& phase = phases_[i];
    const bool goes_on = i + 1 < num_phases() && phase.op != OpCode::attention && phases_[i + 1].op != OpCode::attention &&
                         phases_[i + 1].rows == phase.rows;
    if (!goes_on) bytes = per_value = 0;
    if (phase.op == OpCode::gemm) {
      const Linear& linear = *instructions_[phase.first].linear;
      bytes += linear.bytes();
      per_value = std::max(per_value, bytes_per_value(linear));
    }
    phase.chain_end = goes_on ? phases_[i + 1].chain_end : i + 1;
    phase.chain_rows = per_value * (bytes > kCacheBytes ? kChainRowsPerByteFromMemory : kChainRowsPerByte);
    phase.product = phase.op == OpCode::gemm ? i : i + 1 < num_phases() ? phases_[i + 1].product : i + 1;
  }
}

// The phases of token rows, cut before each attention (see flow.h), and what they cost.
void Program::cut_segments() {
  segments_.assign(1, 0);
  token_macs_ = 0;
  key_costs_.clear();
  flow_rows_ = 0;
  int32_t i = 0;
  for (; i < num_phases() && phases_[i].rows == RowKind::tokens; ++i) {
    flow_rows_ = std::max(flow_rows_, phases_[i].chain_rows);
    const Instruction& in = instructions_[phases_[i].first];
    if (in.op == OpCode::gemm) token_macs_ += static_cast<double>(in.linear->rows) * in.linear->cols;
    if (in.op != OpCode::attention) continue;
    if (i > 0) segments_.push_back(i);
    const double macs = 2.0 * in.attention.num_heads * in.attention.head_dim;
    const auto same = [&](const KeyCost& cost) { return cost.window == in.attention.window; };
    const auto found = std::find_if(key_costs_.begin(), key_costs_.end(), same);
    if (found != key_costs_.end()) found->macs += macs;
    else key_costs_.push_back({in.attention.window, macs});
  }
  segments_.push_back(i);
}

}  // namespace octavo
