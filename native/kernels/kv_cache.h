// The paged KV cache of one layer as the kernels see it. Included inside the namespace of an ISA unit, after simd and
// quantise.h.
//
// In each block, block_stride bytes from the one before:
//   k [kv_heads][head_dim][block_size]   one key is a column: element d at d * block_size + offset
//   v [kv_heads][block_size][head_dim]   one value is a row
//
// i8: each key and each value has a scale of its own, x = scale * code. The head_dim * block_size codes of a block and head are
// followed by its scales:
//   k, v [kv_heads] { int8 codes, as above | float32 scales [block_size] }
// scale = max|x| / 127, code = x * (127 / max|x|) to nearest even, within -127..127. Attention never forms scale * code: it
// multiplies the finished q . code by the key's scale, and the softmax weight of a value by the value's scale.
#pragma once

constexpr int32_t kChunks = kKvTile / 16;

// The cache's element types, for kernels that are templates over them. store16 rounds to nearest even.
struct KvF32 {
  using Element = float;
  static constexpr int kScaleElements = 0;  // room of one scale, in elements
  static OCTAVO_INLINE F16x load16(const Element* p) {
    return load(p);
  }
  static OCTAVO_INLINE void store16(Element* p, F16x a) {
    store(p, a);
  }
};
struct KvF16 {
  using Element = uint16_t;
  static constexpr int kScaleElements = 0;
  static OCTAVO_INLINE F16x load16(const Element* p) {
    return load_f16(p);
  }
  static OCTAVO_INLINE void store16(Element* p, F16x a) {
    store_f16(p, a);
  }
};
struct KvBf16 {
  using Element = uint16_t;
  static constexpr int kScaleElements = 0;
  static OCTAVO_INLINE F16x load16(const Element* p) {
    return load_bf16(p);
  }
  static OCTAVO_INLINE void store16(Element* p, F16x a) {
    store_bf16(p, a);
  }
};
struct KvI8 {
  using Element = int8_t;
  static constexpr int kScaleElements = sizeof(float);
  static OCTAVO_INLINE F16x load16(const Element* p) {  // codes, unscaled
    return to_f32(load_i8(p));
  }
  static OCTAVO_INLINE void store16(Element* p, F16x scaled) {
    store_i8(p, round_code(scaled));
  }
};

struct Span {
  int32_t begin, end;
};

inline int32_t smaller(int32_t a, int32_t b) {
  return a < b ? a : b;
}
inline int32_t larger(int32_t a, int32_t b) {
  return a > b ? a : b;
}
inline int32_t vector_width(int32_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}

// First element of a block's part for one head, in k and in v alike. Args: AttentionArgs or KvWriteArgs.
template <typename Kv, typename Args>
inline int64_t head_offset(const Args& args, int64_t block, int64_t head) {
  return block * (args.block_stride / static_cast<int64_t>(sizeof(typename Kv::Element))) +
         head * args.block_size * (args.head_dim + Kv::kScaleElements);
}

// One tile of the cache: chunk c has its 16 keys at keys[c] + d * key_stride and its values at values[c] + i * value_stride.
template <typename Kv>
struct KvTileView {
  const typename Kv::Element* keys[kChunks];
  const typename Kv::Element* values[kChunks];
  const typename Kv::Element* next_keys[kChunks];  // of the tile to come, here or in AttentionArgs.next: hints, any address
  const typename Kv::Element* next_values[kChunks];
  int64_t key_stride, value_stride;
  const float* key_scales;    // [kKvTile], null where the elements are the values
  const float* value_scales;
  Span chunks;  // those with a position that some row sees; the others have no address
};

// A tile copied as float32 (codes too), for blocks or heads that are not whole vectors.
struct PackedTile {
  float* keys;          // [head_dim][kKvTile]
  float* values;        // [kKvTile][width]
  float* key_scales;    // [kKvTile], i8 only: copied whether or not the elements are
  float* value_scales;
  int32_t width;        // head_dim rounded up to whole vectors
};

// Copies the scales of positions begin..end of the tile that begins at start; the others keep what they held.
inline void pack_scales(const AttentionArgs& args, int32_t start, Span positions, const PackedTile& packed) {
  const int64_t codes = int64_t{args.block_size} * args.head_dim;
  for (int32_t position = positions.begin; position < positions.end;) {
    const int64_t block = args.block_table[position / args.block_size];
    const int32_t offset = position % args.block_size;
    const int32_t count = smaller(args.block_size - offset, positions.end - position);
    const int64_t at = head_offset<KvI8>(args, block, args.kv_head) + codes +
                       offset * int64_t{KvI8::kScaleElements};
    const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(float);
    __builtin_memcpy(packed.key_scales + (position - start), static_cast<const int8_t*>(args.k_cache) + at, bytes);
    __builtin_memcpy(packed.value_scales + (position - start), static_cast<const int8_t*>(args.v_cache) + at, bytes);
    position += count;
  }
}

// Copies positions begin..end of the tile that begins at start; columns from head_dim to width become 0.
template <typename Kv>
void pack_positions(const AttentionArgs& args, int32_t start, Span positions, const PackedTile& packed) {
  using Element = typename Kv::Element;
  const int64_t dim = args.head_dim;
  for (int32_t position = positions.begin; position < positions.end; ++position) {
    const int64_t block = args.block_table[position / args.block_size];
    const int64_t base = head_offset<Kv>(args, block, args.kv_head);
    const int64_t offset = position % args.block_size;
    const Element* const key = static_cast<const Element*>(args.k_cache) + base + offset;
    const Element* const value = static_cast<const Element*>(args.v_cache) + base + offset * dim;
    float* const packed_key = packed.keys + (position - start);
    float* const packed_value = packed.values + int64_t{position - start} * packed.width;
    for (int64_t i = 0; i < dim; i += 16) {
      const int64_t n = dim - i < 16 ? dim - i : 16;
      Element keys[16] = {}, values[16] = {};
      for (int64_t lane = 0; lane < n; ++lane) {
        keys[lane] = key[(i + lane) * args.block_size];
        values[lane] = value[i + lane];
      }
      float wide[16];
      store(wide, Kv::load16(keys));
      for (int64_t lane = 0; lane < n; ++lane) packed_key[(i + lane) * kKvTile] = wide[lane];
      store(packed_value + i, Kv::load16(values));
    }
  }
}

// The tile's chunks in place: each lies within one block. last: the last position that may be read.
template <typename Kv>
void view_in_place(const AttentionArgs& args, int32_t start, int32_t last, KvTileView<Kv>& tile) {
  using Element = typename Kv::Element;
  const int64_t dim = args.head_dim;
  for (int32_t chunk = tile.chunks.begin; chunk < tile.chunks.end; ++chunk) {
    const int32_t position = start + 16 * chunk;
    const int64_t block = args.block_table[position / args.block_size];
    const int64_t base = head_offset<Kv>(args, block, args.kv_head);
    const int64_t offset = position % args.block_size;
    tile.keys[chunk] = static_cast<const Element*>(args.k_cache) + base + offset;
    tile.values[chunk] = static_cast<const Element*>(args.v_cache) + base + offset * dim;
    const bool here = position + kKvTile <= last;
    const int32_t ahead = here ? position + kKvTile : args.next.begin / kKvTile * kKvTile + 16 * chunk;
    const bool known = here || (args.next.block_table != nullptr && ahead < args.next.end);
    const int32_t* const table = here ? args.block_table : args.next.block_table;
    const int64_t next_base =
        known ? head_offset<Kv>(args, table[ahead / args.block_size], here ? args.kv_head : args.next.kv_head) : base;
    tile.next_keys[chunk] = static_cast<const Element*>(args.k_cache) + next_base + ahead % args.block_size;
    tile.next_values[chunk] = static_cast<const Element*>(args.v_cache) + next_base + ahead % args.block_size * dim;
  }
  tile.key_stride = args.block_size;
  tile.value_stride = dim;
}

inline void view_packed(const PackedTile& packed, KvTileView<KvF32>& tile) {
  for (int32_t chunk = 0; chunk < kChunks; ++chunk) {
    tile.keys[chunk] = packed.keys + 16 * chunk;
    tile.values[chunk] = packed.values + int64_t{16} * chunk * packed.width;
    tile.next_keys[chunk] = tile.keys[chunk];
    tile.next_values[chunk] = tile.values[chunk];
  }
  tile.key_stride = kKvTile;
  tile.value_stride = packed.width;
}
