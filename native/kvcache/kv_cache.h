// The KV cache's memory: blocks one after the other; kernels/kv_cache.h has the layout within a layer's part of a block.
//
//   block  | layer 0 keys | layer 0 values | layer 1 keys | ...      part_bytes() each, block_bytes() together
//
// A sequence touches whole blocks, so that huge pages fit: few of them are half used, and few lookups reach all its layers.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/table.h"
#include "runtime/memory.h"
#include "runtime/thread_pool.h"

namespace octavo {

// Bytes of one head's keys, or values, at one position; int8 has a float32 scale.
inline size_t kv_vector_bytes(KvKind kind, int32_t head_dim) {
  switch (kind) {
    case KvKind::f32: return static_cast<size_t>(head_dim) * 4;
    case KvKind::f16:
    case KvKind::bf16: return static_cast<size_t>(head_dim) * 2;
    case KvKind::i8: return static_cast<size_t>(head_dim) + 4;
  }
  return 0;
}

struct BlockMove {
  int32_t block, row;
};

struct KvCache {
  KvKind kind = KvKind::f32;
  int32_t num_layers = 0, num_blocks = 0, num_kv_heads = 0, block_size = 0, head_dim = 0;
  Block memory;

  KvCache(KvKind kind, int32_t num_layers, int32_t num_blocks, int32_t num_kv_heads, int32_t block_size, int32_t head_dim)
      : kind(kind), num_layers(num_layers), num_blocks(num_blocks), num_kv_heads(num_kv_heads), block_size(block_size),
        head_dim(head_dim), memory(bytes(), Paging::huge) {}

  KvCache(const KvCache&) = delete;

  // Keys, or values, of one block and layer, scales included.
  size_t part_bytes() const { return static_cast<size_t>(num_kv_heads) * block_size * kv_vector_bytes(kind, head_dim); }
  size_t block_bytes() const { return 2 * part_bytes() * num_layers; }
  size_t bytes() const { return block_bytes() * num_blocks; }

  uint8_t* block(int32_t index) const { return memory.as<uint8_t>() + block_bytes() * index; }
  // Keys and values of a layer in block 0; those of the next block lie block_bytes() further on.
  uint8_t* keys(int32_t layer) const { return memory.as<uint8_t>() + 2 * part_bytes() * layer; }
  uint8_t* values(int32_t layer) const { return keys(layer) + part_bytes(); }

  void copy_block(int32_t source, int32_t destination) { std::memcpy(block(destination), block(source), block_bytes()); }

  // Whole blocks to rows of block_bytes() each at `host`, and back; the members of the pool share the moves.
  void to_host(const BlockMove* moves, size_t count, uint8_t* host, ThreadPool& pool) const;
  void from_host(const BlockMove* moves, size_t count, const uint8_t* host, ThreadPool& pool) const;
};

}  // namespace octavo
