// The KV cache's memory: per layer, keys and values by block; kernels/kv_cache.h has the layout within a block.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/table.h"
#include "runtime/memory.h"

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

struct KvCache {
  KvKind kind = KvKind::f32;
  int32_t num_layers = 0, num_blocks = 0, num_kv_heads = 0, block_size = 0, head_dim = 0;
  std::vector<Block> keys, values;   // one per layer

  KvCache(KvKind kind, int32_t num_layers, int32_t num_blocks, int32_t num_kv_heads, int32_t block_size, int32_t head_dim)
      : kind(kind), num_layers(num_layers), num_blocks(num_blocks), num_kv_heads(num_kv_heads), block_size(block_size),
        head_dim(head_dim) {
    for (int32_t layer = 0; layer < num_layers; ++layer) {
      keys.emplace_back(block_bytes() * num_blocks, Paging::sparse);
      values.emplace_back(block_bytes() * num_blocks, Paging::sparse);
    }
  }

  KvCache(const KvCache&) = delete;

  // Keys, or values, of one block and layer, scales included.
  size_t block_bytes() const { return static_cast<size_t>(num_kv_heads) * block_size * kv_vector_bytes(kind, head_dim); }

  // All that a block consists of, in whatever is copied or moved: num_pieces() pieces of block_bytes() each.
  int32_t num_pieces() const { return 2 * num_layers; }
  size_t all_layers_bytes() const { return static_cast<size_t>(num_pieces()) * block_bytes(); }
  uint8_t* piece(int32_t block, int32_t index) {
    return (index % 2 == 0 ? keys : values)[index / 2].as<uint8_t>() + static_cast<size_t>(block) * block_bytes();
  }

  void copy_block(int32_t source, int32_t destination) {
    for (int32_t i = 0; i < num_pieces(); ++i) std::memcpy(piece(destination, i), piece(source, i), block_bytes());
  }
};

}  // namespace octavo
