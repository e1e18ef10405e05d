// AttentionPlan: how the attention of one step is shared among the members of the pool.
//
// The unit is a tile: a few query rows of one sequence for one KV head. When one tile is a large part of the step's work (a
// lone sequence with a long context has as many tiles as KV heads), it is cut between splits of kKvSplit positions, and the
// member that finishes its last piece merges the results in order: no barrier, and the bytes of a tile done at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/table.h"
#include "runtime/memory.h"
#include "tape/instruction.h"

namespace octavo {

struct StepArrays;

struct AttentionTask {
  int32_t sequence, kv_head, t0, t1;
  int32_t cut;                      // of which cut tile this is a piece; -1: a whole tile
  int32_t split_begin, split_end;   // a piece's splits
};

// A tile computed in pieces.
struct CutTile {
  int32_t split_begin = 0, split_end = 0, pieces = 0;
  int64_t split_floats = 0;
  float* partials = nullptr;        // split_floats for each split
  std::atomic<int32_t> left{0};     // pieces to come in the current layer
};

// Serves all layers of the same number of heads and the same window.
class AttentionPlan {
 public:
  // Throws std::bad_alloc.
  AttentionPlan(const KernelTable* kernels, const AttentionLayer& layer, int members);

  bool serves(const AttentionLayer& layer) const {
    return layer.num_heads == layer_.num_heads && layer.window == layer_.window && layer.causal == layer_.causal;
  }
  void list(const StepArrays& step);
  const std::vector<AttentionTask>& tasks() const { return tasks_; }

  // Sets the part of the arguments that a task decides.
  void fill(const AttentionTask& task, AttentionArgs* args) const;
  // To be called after a piece: whether it was the tile's last, whose member has to merge. Sets the arguments of the merge.
  bool ends_tile(const AttentionTask& task, AttentionArgs* args);

 private:
  void add_tile(const StepArrays& step, AttentionTask tile, int64_t most_work);

  const KernelTable* kernels_;
  const AttentionLayer layer_;
  const int members_;
  std::vector<AttentionTask> tasks_;
  std::vector<CutTile> cuts_;       // the first num_cuts_ are in use
  int32_t num_cuts_ = 0;
  Block partials_;
  int64_t partials_used_ = 0;       // floats
};

}  // namespace octavo
