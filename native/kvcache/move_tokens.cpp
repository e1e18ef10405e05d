#include "kvcache/move_tokens.h"

#include <atomic>
#include <cstring>
#include <vector>

namespace octavo {

namespace {

// Where one head's part of a block lies, in keys and in values alike; kernels/kv_cache.h has the layout within it.
struct HeadPart {
  const KvCache& cache;
  int64_t element, vector;   // bytes of one element; of one token's elements and scale

  explicit HeadPart(const KvCache& cache) : cache(cache) {
    vector = static_cast<int64_t>(cache.part_bytes()) / (int64_t{cache.num_kv_heads} * cache.block_size);
    element = cache.kind == KvKind::f32 ? 4 : cache.kind == KvKind::f16 || cache.kind == KvKind::bf16 ? 2 : 1;
  }
  int64_t scale_bytes() const { return vector - element * cache.head_dim; }
  int64_t start(int32_t slot, int32_t head) const {
    return static_cast<int64_t>(cache.block_bytes()) * (slot / cache.block_size) + int64_t{head} * cache.block_size * vector;
  }
  int64_t offset(int32_t slot) const { return slot % cache.block_size; }
  int64_t scales(int32_t slot) const { return cache.block_size * element * cache.head_dim + offset(slot) * scale_bytes(); }
};

void copy_run(uint8_t* to_keys, uint8_t* to_values, const uint8_t* from_keys, const uint8_t* from_values, const HeadPart& to,
              const HeadPart& from, const TokenRun& run) {
  const int64_t dim = to.cache.head_dim, element = to.element;
  for (int32_t head = 0; head < to.cache.num_kv_heads; ++head) {
    const int64_t target = to.start(run.target_slot, head), source = from.start(run.source_slot, head);
    const int64_t into = to.offset(run.target_slot), at = from.offset(run.source_slot);
    for (int64_t d = 0; d < dim; ++d) {   // a key is a column
      std::memcpy(to_keys + target + (d * to.cache.block_size + into) * element,
                  from_keys + source + (d * from.cache.block_size + at) * element, run.count * element);
    }
    std::memcpy(to_values + target + into * dim * element, from_values + source + at * dim * element, run.count * dim * element);
    if (to.scale_bytes() != 0) {
      const int64_t bytes = run.count * to.scale_bytes();
      const int64_t to_scales = target + to.scales(run.target_slot), from_scales = source + from.scales(run.source_slot);
      std::memcpy(to_keys + to_scales, from_keys + from_scales, bytes);
      std::memcpy(to_values + to_scales, from_values + from_scales, bytes);
    }
  }
}

}  // namespace

void take_tokens(KvCache& target, KvCache& source, const TokenRun* runs, size_t num_runs, ThreadPool& pool) {
  const HeadPart to(target), from(source);
  std::vector<std::atomic<int32_t>> uses(source.num_blocks);   // runs that are still to be read from each source block
  for (size_t i = 0; i < num_runs; ++i) ++uses[runs[i].source_slot / source.block_size];
  std::atomic<size_t> next{0};
  pool.run([&](int) {
    for (size_t i; (i = next.fetch_add(1)) < num_runs;) {
      for (int32_t layer = 0; layer < target.num_layers; ++layer) {
        copy_run(target.keys(layer), target.values(layer), source.keys(layer), source.values(layer), to, from, runs[i]);
      }
      const int32_t block = runs[i].source_slot / source.block_size;
      if (--uses[block] == 0) source.memory.forget(source.block_bytes() * block, source.block_bytes() * (block + 1));
    }
  });
  source.memory = Block();
}

}  // namespace octavo
