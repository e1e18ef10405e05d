#include "tape/attention_plan.h"

#include <algorithm>
#include <cstddef>

#include "tape/step.h"

namespace octavo {
namespace {

// A tile is cut when it is more than this part of a member's share: what one member may have to wait for at the end.
constexpr int32_t kPiecesPerMember = 8;
// Floats for results of splits, per member: 30 tiles of 8,192 positions, 8 rows and 128 columns. Untouched pages cost
// nothing; a tile whose results do not fit stays whole.
constexpr int64_t kPartialFloats = int64_t{1} << 20;

struct Range {
  int32_t begin, end;
};

// Positions that some row of the tile sees.
Range visible(const StepArrays& step, const AttentionTask& tile, const AttentionLayer& layer) {
  const int32_t first = step.first_position[tile.sequence];
  const int32_t last_row = layer.causal ? tile.t1 : step.query_start[tile.sequence + 1] - step.query_start[tile.sequence];
  return {oldest_seen(first + tile.t0, layer.window), first + last_row};
}

int64_t work_of(const AttentionTask& tile, Range seen) {
  return static_cast<int64_t>(seen.end - seen.begin) * (tile.t1 - tile.t0);
}

template <class Visit>
void for_each_tile(const StepArrays& step, int32_t tile_tokens, int32_t num_kv_heads, const Visit& visit) {
  for (int32_t s = 0; s < step.num_seqs; ++s) {
    const int32_t tokens = step.query_start[s + 1] - step.query_start[s];
    for (int32_t t0 = 0; t0 < tokens; t0 += tile_tokens)
      for (int32_t head = 0; head < num_kv_heads; ++head)
        visit(AttentionTask{s, head, t0, std::min(t0 + tile_tokens, tokens), -1, 0, 0});
  }
}

}  // namespace

AttentionPlan::AttentionPlan(const KernelTable* kernels, const AttentionLayer& layer, int members)
    : kernels_(kernels), layer_(layer), members_(members), cuts_(static_cast<size_t>(kPiecesPerMember) * members),
      partials_(members > 1 ? sizeof(float) * kPartialFloats * members : 0, Paging::sparse) {}

void AttentionPlan::list(const StepArrays& step) {
  tasks_.clear();
  num_cuts_ = 0;
  partials_used_ = 0;
  const int32_t tokens = kernels_->attention_tile(layer_.num_heads, layer_.num_kv_heads);
  int64_t work = 0;
  for_each_tile(step, tokens, layer_.num_kv_heads, [&](const AttentionTask& tile) {
    work += work_of(tile, visible(step, tile, layer_));
  });
  const int64_t most_work = members_ > 1 ? std::max<int64_t>(work / (kPiecesPerMember * members_), 1) : work;
  for_each_tile(step, tokens, layer_.num_kv_heads, [&](const AttentionTask& tile) { add_tile(step, tile, most_work); });
}

void AttentionPlan::add_tile(const StepArrays& step, AttentionTask tile, int64_t most_work) {
  const Range seen = visible(step, tile, layer_);
  const int64_t work = work_of(tile, seen);
  const Range splits = {seen.begin / kKvSplit, (seen.end - 1) / kKvSplit + 1};
  const int32_t rows = (tile.t1 - tile.t0) * (layer_.num_heads / layer_.num_kv_heads);
  const int64_t split_floats = kernels_->attention_partial(rows, layer_.head_dim);
  const int64_t floats = split_floats * (splits.end - splits.begin);
  const bool fits = num_cuts_ < static_cast<int32_t>(cuts_.size()) && partials_used_ + floats <= kPartialFloats * members_;
  if (work <= most_work || splits.end - splits.begin < 2 || !fits) {
    tasks_.push_back(tile);
    return;
  }
  const int64_t wanted = std::min<int64_t>((work + most_work - 1) / most_work, splits.end - splits.begin);
  const int32_t step_splits = static_cast<int32_t>((splits.end - splits.begin + wanted - 1) / wanted);
  CutTile& cut = cuts_[num_cuts_];
  cut.split_begin = splits.begin;
  cut.split_end = splits.end;
  cut.split_floats = split_floats;
  cut.partials = partials_.as<float>() + partials_used_;
  cut.pieces = 0;
  tile.cut = num_cuts_;
  for (int32_t split = splits.begin; split < splits.end; split += step_splits) {
    tile.split_begin = split;
    tile.split_end = std::min(split + step_splits, splits.end);
    tasks_.push_back(tile);
    ++cut.pieces;
  }
  cut.left.store(cut.pieces, std::memory_order_relaxed);
  partials_used_ += floats;
  ++num_cuts_;
}

void AttentionPlan::fill(const AttentionTask& task, AttentionArgs* args) const {
  args->kv_head = task.kv_head;
  args->t0 = task.t0;
  args->t1 = task.t1;
  args->split_begin = task.split_begin;
  args->split_end = task.split_end;
  args->partials = nullptr;
  if (task.cut < 0) return;
  const CutTile& cut = cuts_[task.cut];
  args->partials = cut.partials + cut.split_floats * (task.split_begin - cut.split_begin);
}

bool AttentionPlan::ends_tile(const AttentionTask& task, AttentionArgs* args) {
  if (task.cut < 0) return false;
  CutTile& cut = cuts_[task.cut];
  if (cut.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  cut.left.store(cut.pieces, std::memory_order_relaxed);   // for the next layer, which begins after a barrier
  args->split_begin = cut.split_begin;
  args->split_end = cut.split_end;
  args->partials = cut.partials;
  return true;
}

}  // namespace octavo
