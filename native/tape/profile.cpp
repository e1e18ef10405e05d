// Counting: what each phase of a tape costs.
#include <algorithm>
#include <map>

#include "tape/executor.h"

namespace octavo {
namespace {

const char* op_name(OpCode op) {
  switch (op) {
    case OpCode::embedding: return "embedding";
    case OpCode::quantise: return "quantise";
    case OpCode::gemm: return "gemm";
    case OpCode::rms_norm: return "rms_norm";
    case OpCode::layer_norm: return "layer_norm";
    case OpCode::add: return "add";
    case OpCode::rope: return "rope";
    case OpCode::kv_write: return "kv_write";
    case OpCode::attention: return "attention";
    case OpCode::silu_mul: return "silu_mul";
    case OpCode::gelu_mul: return "gelu_mul";
    case OpCode::gelu: return "gelu";
    case OpCode::select_rows: return "select_rows";
    case OpCode::softcap: return "softcap";
    case OpCode::scale: return "scale";
    case OpCode::gate_rows: return "gate_rows";
    case OpCode::route: return "route";
    case OpCode::sort_routes: return "sort_routes";
    case OpCode::dispatch: return "dispatch";
    case OpCode::combine: return "combine";
  }
  return "";
}

const char* kind_name(WeightKind kind) {
  switch (kind) {
    case WeightKind::f32: return "f32";
    case WeightKind::f16: return "f16";
    case WeightKind::bf16: return "bf16";
    case WeightKind::q8: return "q8";
    case WeightKind::q4: return "q4";
    case WeightKind::w8a8: return "w8a8";
  }
  return "";
}

// Keys that the query rows of one share see in one layer, summed over the rows.
double visible_keys(int32_t first, int32_t tokens, const AttentionLayer& layer) {
  double keys = 0;
  for (int32_t t = first; t < first + tokens; ++t)
    keys += (layer.causal ? t + 1 : first + tokens) - oldest_seen(t, layer.window);
  return keys;
}

}  // namespace

void Executor::set_profiling(bool on) {
  counts_.assign(on ? phases_->size() : 0, PhaseCount());
  waiting_ = PhaseCount();
}

// One more run of a phase; its time is added where it is measured, on member 0.
void Executor::count_run(int32_t phase) {
  PhaseCount& count = counts_[phase];
  count.runs += 1;
  const Instruction& in = head_of(phase);
  if (in.op == OpCode::gemm && row_count(in.rows) > 0) {
    count.macs += static_cast<double>(row_count(in.rows)) * in.weight().rows * in.weight().cols;
    count.bytes += static_cast<double>(in.weight().bytes()) * (in.rows == RowKind::routed ? routing_.num_active() : 1);
  } else if (in.op == OpCode::attention) {
    const AttentionLayer& layer = in.attention;
    for (int32_t s = 0; s < step_.num_seqs; ++s) {
      const int32_t first = step_.first_position[s], tokens = step_.query_start[s + 1] - step_.query_start[s];
      count.macs += 2.0 * visible_keys(first, tokens, layer) * layer.num_heads * layer.head_dim;
      const int32_t oldest = oldest_seen(first, layer.window);
      count.bytes += static_cast<double>(first + tokens - oldest) * 2 * cache_->part_bytes() / cache_->block_size;
    }
  }
}

std::string Executor::phase_label(const Phase& phase) const {
  const Instruction& head = recording_->instructions[phase.first];
  if (head.op == OpCode::gemm) {
    const WeightKind kind = head.weight().parts[0].matrix.kind;
    return std::string(head.rows == RowKind::routed ? "experts " : "gemm ") + kind_name(kind) + " " + std::to_string(head.weight().rows) + "x" +
           std::to_string(head.weight().cols);
  }
  std::string label;
  const char* last = "";
  for (int32_t i = phase.first; i < phase.last; ++i) {
    const char* name = op_name(recording_->instructions[i].op);
    if (name == last) continue;
    label += (label.empty() ? "" : "+") + std::string(name);
    last = name;
  }
  return label;
}

std::vector<Executor::PhaseProfile> Executor::profile() const {
  std::map<std::string, PhaseProfile> by_label;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const std::string label = phase_label(phase_at(static_cast<int32_t>(i)));
    PhaseProfile& entry = by_label.try_emplace(label, PhaseProfile{label, 0, 0, 0, 0}).first->second;
    entry.runs += counts_[i].runs;
    entry.seconds += 1e-9 * static_cast<double>(counts_[i].nanoseconds);
    entry.macs += counts_[i].macs;
    entry.bytes += counts_[i].bytes;
  }
  std::vector<PhaseProfile> result;
  for (auto& [label, entry] : by_label) result.push_back(entry);
  const double waited = 1e-9 * static_cast<double>(waiting_.nanoseconds);
  if (waiting_.runs > 0) result.push_back({"waiting for other threads", waiting_.runs, waited, 0, 0});
  return result;
}

}  // namespace octavo
