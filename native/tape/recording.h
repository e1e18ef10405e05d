// Recording: a forward pass as instructions on buffers, for steps of any size. It holds no memory but that of the weights, and
// does not change once it is sealed; an Executor runs it.
#pragma once

#include <cstdint>
#include <vector>

#include "tape/instruction.h"

namespace octavo {

struct Buffer {
  int32_t cols;
  RowKind kind;
  int32_t slot = -1;
};

struct Slot {                // memory shared by buffers whose lives do not overlap
  int32_t stride;
  RowKind kind;
};

struct RoundedSlot {         // memory for rows rounded to int8 in groups of `group` columns (0: whole rows)
  int32_t cols;
  RowKind kind;
  int32_t group;
};

struct Phase {               // instructions [first, last) that need no barrier between them
  int32_t first, last;
  RowKind rows;
  OpCode op;                 // gemm, attention, sort_routes, or anything row-local
  int32_t chain_end = 0;     // phases up to here can run block of rows by block of rows, without a barrier
  int32_t chain_rows = 0;    // rows per member from which on that is faster
  int32_t product = 0;       // the first product from this phase on; one past the last phase: none
};

struct KeyCost {             // layers of one window: multiply-adds of a row for each key that it sees, in all of them
  int32_t window;
  double macs;
};

struct Recording {
  std::vector<Buffer> buffers;
  std::vector<Slot> slots;
  std::vector<RoundedSlot> rounded;
  std::vector<Instruction> instructions;
  std::vector<Phase> phases;
  std::vector<int32_t> segments;     // first phases of the segments of token rows, and the phase after them
  int32_t flow_rows = 0;             // rows per member from which on blocks of rows go through them
  double token_macs = 0;             // multiply-adds of products per token, without the output head
  std::vector<KeyCost> key_costs;
  bool causal = true;                // of all attention
  int32_t top_k = 0, num_experts = 0;   // routed rows of a token, and what they choose from; 0: there are none
  View logits, hidden;               // outputs: logits, last hidden states of all token rows; buffer -1: there are none
};

// Ends a recording: fuses residual additions, gives each buffer a slot, cuts the instructions into phases.
void seal(Recording& recording, View logits, View hidden);

}  // namespace octavo
