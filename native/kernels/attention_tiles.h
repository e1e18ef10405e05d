// The two products of attention, a few rows by a few vectors at a time. Included inside the namespace of an ISA unit, after
// simd.
//
// Each score and each element of the accumulator is one fma chain of its own, so tiles cannot change a byte.
#pragma once

#include "kv_cache.h"

constexpr int kMicroRows = kVectorRegisters >= 8 ? 6 : 2;

// Runs of at most this many rows (decoding) wait for memory: while they read keys, the values of the same chunk are fetched,
// and while they read values, the keys of the next tile. Keys and values of the next tile, or of what the thread attends to next,
// come into L2 at the same time.
constexpr int kPrefetchRows = 4;

// A vector of 16 elements is a step: so many lie in a cache line.
template <typename Kv>
constexpr int kStepsPerLine = 4 / static_cast<int>(sizeof(typename Kv::Element));

// Vectors per row so that the sums fill at most three quarters of the registers: 6 x 4 of 32; 6 x 1, 3 x 2 or 1 x 4 of 8.
constexpr int micro_vectors(int rows) {
  return 16 * rows <= 3 * kVectorRegisters ? 4 : 8 * rows <= 3 * kVectorRegisters ? 2 : 1;
}

// scores[r][16 v + lane] = query[r] . key lane of chunk v, for kRows rows and kVecs chunks.
// Not inlined: its registers are then allocated for this loop alone.
template <typename Kv, int kRows, int kVecs>
__attribute__((noinline)) void dot_keys(const float* const* query, int32_t head_dim, const KvTileView<Kv>& tile, int32_t chunk,
                                        float* scores) {
  F16x sums[kRows][kVecs];
  const typename Kv::Element* row[kVecs];
  const float* query_row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) query_row[r] = query[r];
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    row[v] = tile.keys[chunk + v];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r][v] = zero();
  }
  for (int32_t d = 0; d < head_dim; ++d) {
    F16x k[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      k[v] = Kv::load16(row[v]);
      row[v] += tile.key_stride;
      if (kRows <= kPrefetchRows && d % kStepsPerLine<Kv> == 0) {  // int8: once per line is enough
        prefetch(tile.values[chunk + v] + int64_t{16} * d);
        prefetch_l2(tile.next_keys[chunk + v] + d * tile.key_stride);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F16x q = broadcast(query_row[r][d]);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) sums[r][v] = fma(q, k[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) store(scores + r * kKvTile + 16 * v, sums[r][v]);
  }
}

// acc[r][16 v ..] += weights[r][key] * value[key][column + 16 v ..] over the keys of span, in order.
template <typename Kv, int kRows, int kVecs>
__attribute__((noinline)) void add_values(const float* weights, const KvTileView<Kv>& tile, int32_t column, Span keys,
                                          float* acc, int64_t width) {
  F16x sums[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) sums[r][v] = load(acc + r * width + column + 16 * v);
  }
  for (int32_t key = keys.begin; key < keys.end;) {
    const typename Kv::Element* value = tile.values[key / 16] + key % 16 * tile.value_stride + column;
    const int32_t end = smaller(key / 16 * 16 + 16, keys.end);
    for (; key < end; ++key) {
      F16x values[kVecs];
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) values[v] = Kv::load16(value + 16 * v);
      value += tile.value_stride;
      if (kRows <= kPrefetchRows) {
        const int64_t d = key % 16 * (tile.value_stride / 16) + column / 16;
#pragma GCC unroll 8
        for (int v = 0; v < kVecs; ++v) {
          prefetch(tile.next_keys[key / 16] + (d + v) * tile.key_stride);
          if (v % kStepsPerLine<Kv> == 0) prefetch_l2(tile.next_values[key / 16] + (d + v) * 16);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const F16x w = broadcast(weights[r * kKvTile + key]);
#pragma GCC unroll 8
        for (int v = 0; v < kVecs; ++v) sums[r][v] = fma(w, values[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) store(acc + r * width + column + 16 * v, sums[r][v]);
  }
}

// Calls op.run<n>(r) for consecutive runs of n rows that together are begin..end, n at most kMicroRows.
template <typename Op>
inline void for_row_runs(int32_t begin, int32_t end, const Op& op) {
  for (int32_t r = begin; r < end;) {
    const int32_t left = end - r;
    if (kMicroRows >= 6 && left >= 6) {
      op.template run<kMicroRows>(r);
      r += 6;
    } else if (kMicroRows >= 6 && left >= 4) {
      op.template run<kMicroRows < 4 ? 1 : 4>(r);
      r += 4;
    } else if (kMicroRows >= 6 && left == 3) {
      op.template run<kMicroRows < 3 ? 1 : 3>(r);
      r += 3;
    } else if (left >= 2) {
      op.template run<2>(r);
      r += 2;
    } else {
      op.template run<1>(r);
      r += 1;
    }
  }
}
