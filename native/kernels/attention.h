// Paged attention of a tile of query rows over one KV head, with an online softmax (Kwon et al., 2023; Milakov and Gimelshein,
// 2018; Dao et al., 2022). Included inside the namespace of an ISA unit, after simd.
//
//   rows       r = (t - t0) * group + g: all query heads of the KV head for token t, then the next token
//   positions  | split 0: kKvSplit ............................ | split 1 ...
//              | tile kKvTile | tile | tile | tile              |
//              | 16 keys: one chunk, one vector of scores | ... |
//
// What happens to a row in a tile depends on the row and the tile's position only:
//   scores   one fma chain over head_dim per key; then * scale, softcap; keys that the row does not see become -inf
//   softmax  m' = max(m, scores); sums and accumulator times exp(m - m') when m changed; sums += exp(scores - m') by lane
//   values   one fma chain over the keys it sees, in order; unseen keys are never touched (they may hold anything, even NaN)
// A split starts afresh and is merged into the row's total when it ends. Tiles without a visible key leave a row as it is.
// Rows are taken kMicroRows at a time so that each loaded key and value serves several rows from registers.

#include "attention_tiles.h"
#include "kv_cache.h"

constexpr int32_t kQueryRows = 24;  // rows sharing a tile of the cache: beyond this the gain is lost in noise

// The rows of one call. Everything lies in AttentionArgs.scratch.
struct AttentionRows {
  int32_t count, group, width;  // width: head_dim rounded up to whole vectors
  float* query;    // [count / kMicroRows][head_dim][kMicroRows]
  float* scores;   // [count][kKvTile]
  float* acc;      // [count][width] this split: sum of exp(score - top) * value
  float* lanes;    // [count][16] this split: sum of exp(score - top) by key position modulo 16
  float* top;      // [count] this split: largest score
  float* total;    // [count][width] all finished splits, as acc
  float* sum;      // [count]
  float* total_top;
  PackedTile packed;
};

constexpr float kChunkLanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

int32_t attention_tile(int32_t num_heads, int32_t num_kv_heads) {
  return larger(kQueryRows / (num_heads / num_kv_heads), 1);
}

int64_t attention_scratch(int32_t num_heads, int32_t num_kv_heads, int32_t head_dim) {
  const int64_t rows = int64_t{attention_tile(num_heads, num_kv_heads)} * (num_heads / num_kv_heads) + kMicroRows;
  const int64_t per_row = head_dim + kKvTile + 2 * vector_width(head_dim) + 16 + 3;
  return rows * per_row + int64_t{kKvTile} * (head_dim + vector_width(head_dim)) + 11 * 16;  // each array aligned to 64 bytes
}

// Part of the positions start .. start + length that row r sees, relative to start; empty when begin >= end.
inline Span seen_by(const AttentionArgs& args, int32_t t0, const AttentionRows& rows, int32_t r, int32_t start,
                    int32_t length) {
  const int32_t position = args.first_position + t0 + r / rows.group;
  const int32_t first = args.window > 0 ? larger(position - args.window + 1, 0) : 0;
  return {larger(first - start, 0), smaller(position + 1 - start, length)};
}

// ---- products over runs of rows ----

template <typename Kv>
struct ScoreRows {
  const KvTileView<Kv>& tile;
  const AttentionRows& rows;
  int32_t head_dim;

  template <int kRows>
  void run(int32_t r) const {
    const float* const query = rows.query + int64_t{r / kMicroRows} * kMicroRows * head_dim + r % kMicroRows;
    float* const scores = rows.scores + int64_t{r} * kKvTile;
    constexpr int kVecs = micro_vectors(kRows);
    int32_t chunk = tile.chunks.begin;
    for (; chunk + kVecs <= tile.chunks.end; chunk += kVecs) {
      dot_keys<Kv, kRows, kVecs>(query, head_dim, tile, chunk, scores + 16 * chunk);
    }
    for (; chunk < tile.chunks.end; ++chunk) {
      dot_keys<Kv, kRows, 1>(query, head_dim, tile, chunk, scores + 16 * chunk);
    }
  }
};

template <typename Kv>
struct ValueRows {
  const KvTileView<Kv>& tile;
  const AttentionRows& rows;
  const AttentionArgs& args;
  int32_t t0, start;

  template <int kRows>
  void add(int32_t r, Span keys) const {
    const float* const weights = rows.scores + int64_t{r} * kKvTile;
    float* const acc = rows.acc + int64_t{r} * rows.width;
    constexpr int kVecs = micro_vectors(kRows);
    int32_t column = 0;
    for (; column + 16 * kVecs <= rows.width; column += 16 * kVecs) {
      add_values<Kv, kRows, kVecs>(weights, tile, column, keys, acc, rows.width);
    }
    for (; column < rows.width; column += 16) {
      add_values<Kv, kRows, 1>(weights, tile, column, keys, acc, rows.width);
    }
  }

  // Keys that all rows of the run see are shared; before and after them each row goes alone, still in key order.
  template <int kRows>
  void run(int32_t r) const {
    Span shared = {seen(r + kRows - 1).begin, seen(r).end};
    if (shared.begin >= shared.end) {
      shared = {kKvTile, kKvTile};
    }
    for (int i = 0; i < kRows; ++i) {
      const Span own = seen(r + i);
      if (own.begin < smaller(own.end, shared.begin)) add<1>(r + i, {own.begin, smaller(own.end, shared.begin)});
    }
    if (shared.begin < shared.end) add<kRows>(r, shared);
    for (int i = 0; i < kRows; ++i) {
      const Span own = seen(r + i);
      if (shared.end < own.end) add<1>(r + i, {shared.end, own.end});
    }
  }

  Span seen(int32_t r) const {
    return seen_by(args, t0, rows, r, start, kKvTile);
  }
};

// ---- softmax ----

inline void scale_row(float* x, int32_t n, F16x factor) {
  for (int32_t i = 0; i < n; i += 16) store(x + i, mul(load(x + i), factor));
}

// Scores of row r in this tile -> exp(score - top), and the row's top, lanes and acc brought up to date.
void softmax_row(const AttentionArgs& args, const AttentionRows& rows, int32_t r, Span keys) {
  float* const scores = rows.scores + int64_t{r} * kKvTile;
  const F16x unseen = broadcast(-__builtin_inff());
  F16x s[kChunks];
  F16x largest = unseen;
  for (int32_t v = 0; v < kChunks; ++v) {
    s[v] = mul(load(scores + 16 * v), broadcast(args.scale));
    if (args.softcap > 0.0f) {
      const F16x cap = broadcast(args.softcap);
      s[v] = mul(cap, tanh(div(s[v], cap)));
    }
    if (keys.begin > 0 || keys.end < kKvTile) {
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
  for (int32_t v = 0; v < kChunks; ++v) {
    const F16x weight = exp(sub(s[v], broadcast(top)));
    store(scores + 16 * v, weight);
    sum = add(sum, weight);
  }
  store(lanes, sum);
}

void clear_split(const AttentionRows& rows) {
  __builtin_memset(rows.acc, 0, sizeof(float) * static_cast<uint64_t>(rows.count) * static_cast<uint64_t>(rows.width));
  __builtin_memset(rows.lanes, 0, sizeof(float) * static_cast<uint64_t>(rows.count) * 16);
  for (int32_t r = 0; r < rows.count; ++r) rows.top[r] = -__builtin_inff();
}

// total = total * exp(total_top - m) + split * exp(top - m) with m the larger top; the first split is taken as it is.
void merge_split(const AttentionRows& rows, int32_t r) {
  const float top = rows.top[r] > rows.total_top[r] ? rows.top[r] : rows.total_top[r];
  const F16x old_factor = exp(broadcast(rows.total_top[r] - top));
  const F16x new_factor = exp(broadcast(rows.top[r] - top));
  const float* const acc = rows.acc + int64_t{r} * rows.width;
  float* const total = rows.total + int64_t{r} * rows.width;
  for (int32_t i = 0; i < rows.width; i += 16) {
    store(total + i, add(mul(load(total + i), old_factor), mul(load(acc + i), new_factor)));
  }
  const float split_sum = reduce_add(load(rows.lanes + int64_t{r} * 16));
  const F16x sum = add(mul(broadcast(rows.sum[r]), old_factor), mul(broadcast(split_sum), new_factor));
  store_n(rows.sum + r, sum, 1);
  rows.total_top[r] = top;
}

// ---- one tile, all tiles ----

template <typename Kv>
void attend_tile(const AttentionArgs& args, int32_t t0, const AttentionRows& rows, int32_t start, const KvTileView<Kv>& tile) {
  int32_t begin = 0, end = rows.count;  // the rows that see something: later rows see later keys, so they are consecutive
  while (begin < end && seen_by(args, t0, rows, begin, start, kKvTile).end <= 0) ++begin;
  while (end > begin && seen_by(args, t0, rows, end - 1, start, kKvTile).begin >= kKvTile) --end;
  const ScoreRows<Kv> score{tile, rows, args.head_dim};
  for (int32_t r = begin / kMicroRows * kMicroRows; r < end; r += kMicroRows) {
    for_row_runs(r, smaller(r + kMicroRows, rows.count), score);
  }
  for (int32_t r = begin; r < end; ++r) softmax_row(args, rows, r, seen_by(args, t0, rows, r, start, kKvTile));
  for_row_runs(begin, end, ValueRows<Kv>{tile, rows, args, t0, start});
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
  rows.query = cursor.take((count + kMicroRows - 1) / kMicroRows * kMicroRows * args.head_dim);
  rows.scores = cursor.take(count * kKvTile);
  rows.acc = cursor.take(count * rows.width);
  rows.lanes = cursor.take(count * 16);
  rows.top = cursor.take(count);
  rows.total = cursor.take(count * rows.width);
  rows.sum = cursor.take(count);
  rows.total_top = cursor.take(count);
  rows.packed = {cursor.take(int64_t{args.head_dim} * kKvTile), cursor.take(int64_t{kKvTile} * rows.width), rows.width};
  return rows;
}

// Queries transposed in runs of kMicroRows, and totals of nothing.
void begin_rows(const AttentionArgs& args, int32_t t0, const AttentionRows& rows) {
  for (int32_t r = 0; r < rows.count; ++r) {
    const int64_t head = int64_t{args.kv_head} * rows.group + r % rows.group;
    const float* const q = args.q + int64_t{t0 + r / rows.group} * args.ldq + head * args.head_dim;
    float* const query = rows.query + int64_t{r / kMicroRows} * kMicroRows * args.head_dim + r % kMicroRows;
    for (int64_t d = 0; d < args.head_dim; ++d) query[d * kMicroRows] = q[d];
    for (int32_t i = 0; i < rows.width; i += 16) store(rows.total + int64_t{r} * rows.width + i, zero());
    rows.sum[r] = 0.0f;
    rows.total_top[r] = -__builtin_inff();
  }
}

void write_rows(const AttentionArgs& args, int32_t t0, const AttentionRows& rows) {
  for (int32_t r = 0; r < rows.count; ++r) {
    const int64_t head = int64_t{args.kv_head} * rows.group + r % rows.group;
    float* const out = args.out + int64_t{t0 + r / rows.group} * args.ldo + head * args.head_dim;
    const float* const total = rows.total + int64_t{r} * rows.width;
    const F16x sum = broadcast(rows.sum[r]);
    for (int32_t i = 0; i < args.head_dim; i += 16) {
      store_n(out + i, div(load(total + i), sum), smaller(args.head_dim - i, 16));
    }
  }
}

template <typename Kv>
void attend(const AttentionArgs& args, int32_t t0, int32_t t1) {
  const AttentionRows rows = lay_out(args, t1 - t0);
  begin_rows(args, t0, rows);
  // Without vector conversions (the portable unit) halves are widened once per tile instead of once per run of rows.
  const bool slow_halves = kVectorRegisters < 8 && args.kv_kind != KvKind::f32;
  const bool in_place = args.block_size % 16 == 0 && args.head_dim % 16 == 0 && !slow_halves;
  const int32_t first = args.window > 0 ? larger(args.first_position + t0 - args.window + 1, 0) : 0;
  const int32_t end = args.first_position + t1;
  clear_split(rows);
  for (int32_t start = first / kKvTile * kKvTile; start < end; start += kKvTile) {
    const Span positions = {larger(first, start), smaller(end, start + kKvTile)};
    const Span chunks = {(positions.begin - start) / 16, (positions.end - start + 15) / 16};
    if (in_place) {
      KvTileView<Kv> tile;
      tile.chunks = chunks;
      view_in_place(args, start, end - 1, tile);
      attend_tile(args, t0, rows, start, tile);
    } else {
      KvTileView<KvF32> tile;
      tile.chunks = chunks;
      pack_positions<Kv>(args, start, positions, rows.packed);
      view_packed(rows.packed, tile);
      attend_tile(args, t0, rows, start, tile);
    }
    if (start + kKvTile >= end || (start + kKvTile) % kKvSplit == 0) {
      const int32_t split = start / kKvSplit * kKvSplit;
      for (int32_t r = 0; r < rows.count; ++r) {
        const Span seen = seen_by(args, t0, rows, r, split, kKvSplit);
        if (seen.begin < seen.end) merge_split(rows, r);
      }
      clear_split(rows);
    }
  }
  write_rows(args, t0, rows);
}

// Semantics: octavo.ops.interface.Ops.paged_attention.
void attention(const AttentionArgs& args) {
  const int32_t tokens = attention_tile(args.num_heads, args.num_kv_heads);
  for (int32_t t = args.t0; t < args.t1; t += tokens) {
    const int32_t end = smaller(args.t1, t + tokens);
    switch (args.kv_kind) {
      case KvKind::f32:
        attend<KvF32>(args, t, end);
        break;
      case KvKind::f16:
        attend<KvF16>(args, t, end);
        break;
      case KvKind::bf16:
        attend<KvBf16>(args, t, end);
        break;
    }
  }
}
