// SwapSpace: room for KV blocks outside the cache, in memory or in a file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/mapping.h"
#include "runtime/thread_pool.h"
#include "tape/kv_cache.h"

namespace octavo {

struct BlockMove {
  int32_t block, slot;
};

struct SlotMove {
  int32_t source, target;
};

// A slot is as large as a block of the cache it is used with; slot s begins at s times that many bytes:
//
//   slot 0: layer 0 keys | layer 0 values | layer 1 keys | ...   (KvCache::piece order)
//   slot 1: ...
//
// A file is read and written, not mapped: a full disk is then an error of one move and not the end of the process.
class SwapSpace {
 public:
  // In memory: pages cost nothing until a slot is first written. Throws std::bad_alloc.
  explicit SwapSpace(size_t bytes) : bytes_(bytes), memory_(bytes) {}
  // In an open file from file_offset on; the descriptor stays the caller's.
  SwapSpace(size_t bytes, int descriptor, size_t file_offset)
      : bytes_(bytes), memory_(0), descriptor_(descriptor), file_offset_(file_offset) {}

  size_t bytes() const { return bytes_; }
  size_t num_slots(const KvCache& cache) const { return bytes_ / cache.block_bytes(); }

  // errors[i] becomes 0, or the errno that kept move i from being made. Moves share the pool's threads.
  void out(KvCache& cache, const BlockMove* moves, size_t count, int32_t* errors, ThreadPool& pool) const;
  void in(KvCache& cache, const BlockMove* moves, size_t count, int32_t* errors, ThreadPool& pool) const;

  // From slot to slot, one after the other; no target is a source. errors as above.
  void shift(const KvCache& cache, const SlotMove* moves, size_t count, int32_t* errors) const;
  // Slots within both sizes keep their content; a file's own size is the caller's business. Throws std::bad_alloc, unchanged then.
  void resize(size_t bytes);

 private:
  enum class Direction { out, in };

  int32_t move(KvCache& cache, BlockMove move, Direction direction) const;
  void move_all(KvCache& cache, const BlockMove* moves, size_t count, int32_t* errors, ThreadPool& pool,
                Direction direction) const;

  size_t bytes_;
  Mapping memory_;
  int descriptor_ = -1;
  size_t file_offset_ = 0;
};

}  // namespace octavo
