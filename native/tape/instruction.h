// What a forward pass is made of: views of buffers, and instructions that read and write them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/table.h"
#include "weights/weights.h"

namespace octavo {

// Rows of a buffer: one per token of the step, one per row whose logits are wanted, or one per token and expert that it goes to,
// sorted by expert (see routing.h).
enum class RowKind : int32_t { tokens, logits, routed };

enum class OpCode : int32_t {
  embedding, quantise, gemm, rms_norm, layer_norm, add, rope, kv_write, attention, silu_mul, gelu_mul, gelu, select_rows,
  softcap, scale, gate_rows, route, sort_routes, dispatch, combine
};

// Columns [column, column + cols) of a buffer. Buffers are written once (single assignment).
struct View {
  int32_t buffer = -1;
  int32_t column = 0;
  int32_t cols = 0;

  bool operator==(const View& other) const {
    return buffer == other.buffer && column == other.column && cols == other.cols;
  }
};

struct AttentionLayer {
  int32_t layer, num_heads, num_kv_heads, head_dim;
  float scale;
  int32_t window;   // 0: none
  float softcap;    // 0: none
  bool causal;      // false: every row of a share sees all of it, and a share is a whole sequence
};

// How a row's experts are chosen.
struct RouteRule {
  int32_t top_k = 0;
  bool renormalise = false;
};

// What an embedding looks its rows up by.
enum class IndexKind : int32_t { token, position, zero };

// The oldest position that a query at `position` sees through a window (0: none).
inline int32_t oldest_seen(int32_t position, int32_t window) { return window > 0 ? std::max(position - window + 1, 0) : 0; }

struct Instruction {
  OpCode op{};
  RowKind rows{};
  std::vector<View> inputs;    // gemm: x, and a residual if there is one; kv_write: keys, values
  std::vector<View> outputs;
  std::vector<std::shared_ptr<const Linear>> weights;   // gemm on routed rows: one per expert
  int32_t rounded = -1;        // rows rounded to int8: written by quantise, read by gemm
  float scalar = 0.0f;         // eps, embedding scale, cap, factor
  int32_t head_dim = 0;        // rope
  AttentionLayer attention{};
  IndexKind index{};           // embedding
  RouteRule route;             // route
  std::shared_ptr<const Vector> vector;
  std::shared_ptr<const Vector> bias;   // layer_norm
  std::shared_ptr<const RopeTable> rope;
  std::shared_ptr<const Linear> ordered_by;   // quantise: rounds the columns in this weight's column_order; null: in order

  const Linear& weight() const { return *weights.front(); }
  bool has_residual() const { return op == OpCode::gemm && inputs.size() > 1; }
};

// Attention reads rows of others, and a sort reads all rows: barriers stand before and behind them.
inline bool stands_alone(OpCode op) { return op == OpCode::attention || op == OpCode::sort_routes; }
// Everything but these and products works on each row by itself, so that a run of such instructions needs no barrier.
inline bool is_row_local(OpCode op) { return op != OpCode::gemm && !stands_alone(op); }

}  // namespace octavo
