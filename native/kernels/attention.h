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
// A split starts afresh and is merged into the row's total when it ends, or later from AttentionArgs.partials; a tile within one
// split needs no merge. Tiles without a visible key leave a row as it is.
// Rows are taken kMicroRows at a time so that each loaded key and value serves several rows from registers.

#include "attention_rows.h"
#include "attention_tiles.h"
#include "kv_cache.h"

// ---- products over runs of rows ----

template <typename Kv>
struct ScoreRows {
  const KvTileView<Kv>& tile;
  const AttentionRows& rows;
  int32_t head_dim;

  template <int kRows>
  void run(int32_t r) const {
    const float* const* const query = rows.query + r;
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

// ---- one tile, all tiles ----

template <typename Kv>
void attend_tile(const AttentionArgs& args, int32_t t0, const AttentionRows& rows, int32_t start, const KvTileView<Kv>& tile) {
  int32_t begin = 0, end = rows.count;  // the rows that see something: later rows see later keys, so they are consecutive
  while (begin < end && seen_by(args, t0, rows, begin, start, kKvTile).end <= 0) ++begin;
  while (end > begin && seen_by(args, t0, rows, end - 1, start, kKvTile).begin >= kKvTile) --end;
  const ScoreRows<Kv> score{tile, rows, args.head_dim};
  for_row_runs(begin, end, score);
  for (int32_t r = begin; r < end; ++r) {
    softmax_row(args, rows, r, seen_by(args, t0, rows, r, start, kKvTile), tile.key_scales, tile.value_scales);
  }
  for_row_runs(begin, end, ValueRows<Kv>{tile, rows, args, t0, start});
}

// Positions that the rows see together, cut to the wanted splits.
inline Span visible(const AttentionArgs& args, int32_t t0, int32_t t1) {
  const Span all = {args.window > 0 ? larger(args.first_position + t0 - args.window + 1, 0) : 0,
                    args.num_keys > 0 ? args.num_keys : args.first_position + t1};
  if (args.partials == nullptr) return all;
  return {larger(all.begin, args.split_begin * kKvSplit), smaller(all.end, args.split_end * kKvSplit)};
}

template <typename Kv>
void attend(const AttentionArgs& args, int32_t t0, int32_t t1) {
  const AttentionRows rows = lay_out(args, t1 - t0);
  find_queries(args, t0, rows);
  // Without vector conversions (the portable unit) narrow elements are widened once per tile, not once per run of rows.
  const bool slow_widening = kVectorRegisters < 8 && args.kv_kind != KvKind::f32;
  const bool in_place = args.block_size % 16 == 0 && args.head_dim % 16 == 0 && !slow_widening;
  const float* const key_scales = Kv::kScaleElements > 0 ? rows.packed.key_scales : nullptr;
  const float* const value_scales = Kv::kScaleElements > 0 ? rows.packed.value_scales : nullptr;
  const Span range = visible(args, t0, t1);
  // What lies in one split has nothing to be merged with: it is the total.
  const bool single = args.partials == nullptr && range.begin / kKvSplit == (range.end - 1) / kKvSplit;
  if (!single) clear_totals(rows);
  clear_split(rows);
  for (int32_t start = range.begin / kKvTile * kKvTile; start < range.end; start += kKvTile) {
    const Span positions = {larger(range.begin, start), smaller(range.end, start + kKvTile)};
    const Span chunks = {(positions.begin - start) / 16, (positions.end - start + 15) / 16};
    if (Kv::kScaleElements > 0) pack_scales(args, start, positions, rows.packed);
    if (in_place) {
      KvTileView<Kv> tile;
      tile.chunks = chunks;
      tile.key_scales = key_scales;
      tile.value_scales = value_scales;
      view_in_place(args, start, range.end - 1, tile);
      attend_tile(args, t0, rows, start, tile);
    } else {
      KvTileView<KvF32> tile;
      tile.chunks = chunks;
      tile.key_scales = key_scales;
      tile.value_scales = value_scales;
      pack_positions<Kv>(args, start, positions, rows.packed);
      view_packed(rows.packed, tile);
      attend_tile(args, t0, rows, start, tile);
    }
    if (!single && (start + kKvTile >= range.end || (start + kKvTile) % kKvSplit == 0)) {
      end_split(args, t0, rows, start / kKvSplit);
      clear_split(rows);
    }
  }
  if (single) {
    for (int32_t r = 0; r < rows.count; ++r) rows.sum[r] = sum_of(rows, r);
    write_rows(args, t0, rows, rows.acc);
  } else if (args.partials == nullptr) {
    write_rows(args, t0, rows, rows.total);
  }
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
      case KvKind::i8:
        attend<KvI8>(args, t, end);
        break;
    }
  }
}

// The tile's output from the results of its splits split_begin..split_end.
void attention_merge(const AttentionArgs& args) {
  const AttentionRows rows = lay_out(args, args.t1 - args.t0);
  clear_totals(rows);
  for (int32_t split = args.split_begin; split < args.split_end; ++split) {
    const SplitResult result = split_result(args, rows, split);
    for (int32_t r = 0; r < rows.count; ++r) {
      const Span seen = seen_by(args, args.t0, rows, r, split * kKvSplit, kKvSplit);
      if (seen.begin < seen.end) merge_split(rows, r, result.acc + int64_t{r} * rows.width, result.top[r], result.sum[r]);
    }
  }
  write_rows(args, args.t0, rows, rows.total);
}
