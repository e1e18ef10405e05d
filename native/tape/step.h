#pragma once

#include <algorithm>
#include <cstdint>

namespace octavo {

// The arrays of one step; see octavo.ops.interface.StepInputs.
struct StepArrays {
  const int32_t* token_ids;
  const int32_t* positions;
  const int32_t* slots;
  const int32_t* query_start;
  const int32_t* first_position;
  const int32_t* block_tables;   // [num_seqs][max_blocks]
  const int32_t* logit_rows;
  int32_t num_tokens, num_seqs, max_blocks, num_logits;

  int32_t sequence_of(int32_t row) const {
    return static_cast<int32_t>(std::upper_bound(query_start, query_start + num_seqs + 1, row) - query_start) - 1;
  }
};

}  // namespace octavo
