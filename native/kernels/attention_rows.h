// The query rows of one attention tile: their arrays, their softmax, the results of their splits. Included inside the namespace
// of an ISA unit, after simd.
#pragma once

#include "attention_tiles.h"
#include "kv_cache.h"

constexpr int32_t kQueryRows = 24;  // rows sharing a tile of the cache: beyond this the gain is lost in noise

// The rows of one call. Everything lies in AttentionArgs.scratch.
struct AttentionRows {
  int32_t count, group, width;  // width: head_dim rounded up to whole vectors
  const float** query;  // [count] where each row's query stands
  float* scores;   // [count][kKvTile]
  float* acc;      // [count][width] this split: sum of exp(score - top) * value
  float* lanes;    // [count][16] this split: sum of exp(score - top) by key position modulo 16
  float* top;      // [count] this split: largest score
  float* total;    // [count][width] all finished splits, as acc
  float* sum;      // [count]
  float* total_top;
  PackedTile packed;
};

constexpr int64_t kPointerFloats = 2;
static_assert(sizeof(const float*) == kPointerFloats * sizeof(float));
constexpr float kChunkLanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

int32_t attention_tile(int32_t num_heads, int32_t num_kv_heads) {
  return larger(kQueryRows / (num_heads / num_kv_heads), 1);
}

int64_t attention_scratch(int32_t num_heads, int32_t num_kv_heads, int32_t head_dim) {
  const int64_t rows = int64_t{attention_tile(num_heads, num_kv_heads)} * (num_heads / num_kv_heads) + kMicroRows;
  const int64_t per_row = kPointerFloats + kKvTile + 2 * vector_width(head_dim) + 16 + 3;
  const int64_t packed = int64_t{kKvTile} * (head_dim + vector_width(head_dim) + 2);
  return rows * per_row + packed + 13 * 16;  // each array aligned to 64 bytes
}

int64_t attention_partial(int32_t rows, int32_t head_dim) {
  return int64_t{rows} * vector_width(head_dim) + (2 * rows + 15) / 16 * 16;  // a multiple of 64 bytes: no line is shared
}

// Part of the positions start .. start + length that row r sees, relative to start; empty when begin >= end.
inline Span seen_by(const AttentionArgs& args, int32_t t0, const AttentionRows& rows, int32_t r, int32_t start,
                    int32_t length) {
  const int32_t position = args.first_position + t0 + r / rows.group;
  const int32_t first = args.window > 0 ? larger(position - args.window + 1, 0) : 0;
  const int32_t end = args.num_keys > 0 ? args.num_keys : position + 1;
  return {larger(first - start, 0), smaller(end - start, length)};
}

// Consecutive arrays of the scratch, each aligned to 64 bytes.
struct ScratchCursor {
  uintptr_t at;

  float* take(int64_t floats) {
    at = (at + 63) / 64 * 64;
    float* const array = reinterpret_cast<float*>(at);
    at += static_cast<uintptr_t>(floats) * sizeof(float);
    return array;
  }
};

AttentionRows lay_out(const AttentionArgs& args, int32_t tokens) {
  AttentionRows rows;
  rows.group = args.num_heads / args.num_kv_heads;
  rows.count = tokens * rows.group;
  rows.width = vector_width(args.head_dim);
  const int64_t count = rows.count;
  ScratchCursor cursor{reinterpret_cast<uintptr_t>(args.scratch)};
  rows.query = reinterpret_cast<const float**>(cursor.take(count * kPointerFloats));
  rows.scores = cursor.take(count * kKvTile);
  rows.acc = cursor.take(count * rows.width);
  rows.lanes = cursor.take(count * 16);
  rows.top = cursor.take(count);
  rows.total = cursor.take(count * rows.width);
  rows.sum = cursor.take(count);
  rows.total_top = cursor.take(count);
  rows.packed.keys = cursor.take(int64_t{args.head_dim} * kKvTile);
  rows.packed.values = cursor.take(int64_t{kKvTile} * rows.width);
  rows.packed.key_scales = cursor.take(kKvTile);
  rows.packed.value_scales = cursor.take(kKvTile);
  rows.packed.width = rows.width;
  return rows;
}

void clear_totals(const AttentionRows& rows) {
  const uint64_t count = static_cast<uint64_t>(rows.count);
  __builtin_memset(rows.total, 0, sizeof(float) * count * static_cast<uint64_t>(rows.width));
  __builtin_memset(rows.sum, 0, sizeof(float) * count);
  for (int32_t r = 0; r < rows.count; ++r) rows.total_top[r] = -__builtin_inff();
}

void find_queries(const AttentionArgs& args, int32_t t0, const AttentionRows& rows) {
  const float* const first = args.q + int64_t{args.kv_head} * rows.group * args.head_dim;
  for (int32_t r = 0; r < rows.count; ++r) {
    rows.query[r] = first + int64_t{t0 + r / rows.group} * args.ldq + int64_t{r % rows.group} * args.head_dim;
  }
}

// weighted [count][width]: sums of weight * value, to be divided by the sums of weights. Adding 0 turns -0 into the 0 that a
// merge would leave, so that a row does not show whether its tile needed one.
void write_rows(const AttentionArgs& args, int32_t t0, const AttentionRows& rows, const float* weighted) {
  for (int32_t r = 0; r < rows.count; ++r) {
    const int64_t head = int64_t{args.kv_head} * rows.group + r % rows.group;
    float* const out = args.out + int64_t{t0 + r / rows.group} * args.ldo + head * args.head_dim;
    const float* const row = weighted + int64_t{r} * rows.width;
    const F16x share = broadcast(1.0f / rows.sum[r]);
    for (int32_t i = 0; i < args.head_dim; i += 16) {
      store_n(out + i, add(mul(load(row + i), share), zero()), smaller(args.head_dim - i, 16));
    }
  }
}

// ---- softmax ----

inline void scale_row(float* x, int32_t n, F16x factor) {
  for (int32_t i = 0; i < n; i += 16) store(x + i, mul(load(x + i), factor));
}

// Products of row r in this tile -> exp(score - top), times the value's scale if any; top, lanes and acc brought up to date.
// Chunks without a key that the row sees are left out: kVecs is their number, or 0 where it is only known as `chunks`.
template <int kVecs>
OCTAVO_INLINE void softmax_chunks(const AttentionArgs& args, const AttentionRows& rows, int32_t r, Span keys, Span chunks,
                                  const float* key_scales, const float* value_scales) {
  float* const scores = rows.scores + int64_t{r} * kKvTile;
  const int32_t first = kVecs > 0 ? 0 : chunks.begin, last = kVecs > 0 ? kVecs : chunks.end;
  const F16x unseen = broadcast(-__builtin_inff());
  F16x s[kChunks];
  F16x largest = unseen;
  for (int32_t v = first; v < last; ++v) {
    s[v] = load(scores + 16 * v);
    if (key_scales != nullptr) s[v] = mul(s[v], load(key_scales + 16 * v));
    s[v] = mul(s[v], broadcast(args.scale));
    if (args.softcap > 0.0f) {
      const F16x cap = broadcast(args.softcap);
      s[v] = mul(cap, tanh(div(s[v], cap)));
    }
    if (kVecs == 0) {
      const F16x key = add(load(kChunkLanes), broadcast(static_cast<float>(16 * v)));
      s[v] = select(less(key, broadcast(static_cast<float>(keys.end))), s[v], unseen);
      s[v] = select(less(key, broadcast(static_cast<float>(keys.begin))), unseen, s[v]);
    }
    largest = max(largest, s[v]);
  }
  const float before = rows.top[r];
  const float here = reduce_max(largest);
  const float top = here > before ? here : before;
  float* const lanes = rows.lanes + int64_t{r} * 16;
  if (top != before) {
    const F16x factor = exp(broadcast(before - top));
    scale_row(rows.acc + int64_t{r} * rows.width, rows.width, factor);
    scale_row(lanes, 16, factor);
    rows.top[r] = top;
  }
  F16x sum = load(lanes);
  for (int32_t v = first; v < last; ++v) {
    const F16x weight = exp(sub(s[v], broadcast(top)));
    store(scores + 16 * v, value_scales != nullptr ? mul(weight, load(value_scales + 16 * v)) : weight);
    sum = add(sum, weight);
  }
  store(lanes, sum);
}

inline void softmax_row(const AttentionArgs& args, const AttentionRows& rows, int32_t r, Span keys, const float* key_scales,
                        const float* value_scales) {
  if (keys.begin <= 0 && keys.end >= kKvTile) {
    softmax_chunks<kChunks>(args, rows, r, keys, {}, key_scales, value_scales);
  } else {
    const Span chunks = {larger(keys.begin, 0) / 16, (keys.end + 15) / 16};
    softmax_chunks<0>(args, rows, r, keys, chunks, key_scales, value_scales);
  }
}

void clear_split(const AttentionRows& rows) {
  __builtin_memset(rows.acc, 0, sizeof(float) * static_cast<uint64_t>(rows.count) * static_cast<uint64_t>(rows.width));
  __builtin_memset(rows.lanes, 0, sizeof(float) * static_cast<uint64_t>(rows.count) * 16);
  for (int32_t r = 0; r < rows.count; ++r) rows.top[r] = -__builtin_inff();
}

inline float sum_of(const AttentionRows& rows, int32_t r) {
  return reduce_add(load(rows.lanes + int64_t{r} * 16));
}

// What a split left for each row: the inputs of merge_split.
struct SplitResult {
  float* acc;  // [count][width]
  float* top;  // [count]
  float* sum;  // [count]
};

inline SplitResult split_result(const AttentionArgs& args, const AttentionRows& rows, int32_t split) {
  float* const acc = args.partials + (split - args.split_begin) * attention_partial(rows.count, args.head_dim);
  float* const top = acc + int64_t{rows.count} * rows.width;
  return {acc, top, top + rows.count};
}

// total = total * exp(total_top - m) + split * exp(top - m) with m the larger top; the first split is taken as it is.
void merge_split(const AttentionRows& rows, int32_t r, const float* acc, float split_top, float split_sum) {
  const float top = split_top > rows.total_top[r] ? split_top : rows.total_top[r];
  const F16x old_factor = exp(broadcast(rows.total_top[r] - top));
  const F16x new_factor = exp(broadcast(split_top - top));
  float* const total = rows.total + int64_t{r} * rows.width;
  for (int32_t i = 0; i < rows.width; i += 16) {
    store(total + i, add(mul(load(total + i), old_factor), mul(load(acc + i), new_factor)));
  }
  const F16x sum = add(mul(broadcast(rows.sum[r]), old_factor), mul(broadcast(split_sum), new_factor));
  store_n(rows.sum + r, sum, 1);
  rows.total_top[r] = top;
}

// The finished split goes into the totals, or to args.partials for a later merge.
void end_split(const AttentionArgs& args, int32_t t0, const AttentionRows& rows, int32_t split) {
  if (args.partials == nullptr) {
    for (int32_t r = 0; r < rows.count; ++r) {
      const Span seen = seen_by(args, t0, rows, r, split * kKvSplit, kKvSplit);
      if (seen.begin >= seen.end) continue;
      merge_split(rows, r, rows.acc + int64_t{r} * rows.width, rows.top[r], sum_of(rows, r));
    }
    return;
  }
  const SplitResult result = split_result(args, rows, split);
  const uint64_t count = static_cast<uint64_t>(rows.count);
  __builtin_memcpy(result.acc, rows.acc, sizeof(float) * count * static_cast<uint64_t>(rows.width));
  __builtin_memcpy(result.top, rows.top, sizeof(float) * count);
  for (int32_t r = 0; r < rows.count; ++r) result.sum[r] = sum_of(rows, r);
}
