// Flow: blocks of rows on their way through the segments of a step, each at a pace of its own.
//
//   segment   | embedding .. kv_write | attention .. kv_write | attention .. kv_write | ...
//   block 0   |=======================|=====================> |
//   block 1   |=======================|====>                  |
//   block 2   |=================>     |                       |
//
// A segment begins with attention, which reads keys that the segment before it wrote: those of the block itself, and of earlier
// blocks with rows of the same sequence. There are no other dependencies, so a member that is slower for a while (the host
// took its core) holds up nobody at once, and one that is faster takes over the blocks that are left behind.
//
// A vector of keys that attention loads may hold later keys, which another block is just writing: they stand in lanes of their
// own, which are masked before they count.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace octavo {

struct StepArrays;

class Flow {
 public:
  enum class Next { work, wait, end };

  // Cuts the rows of a step into blocks of `block_rows`, to pass through `segments` segments. Throws std::bad_alloc.
  void cut(const StepArrays& step, int32_t block_rows, int32_t segments);

  int32_t size() const { return size_; }
  int32_t first_row(int32_t block) const { return blocks_[block].first_row; }
  int32_t last_row(int32_t block) const { return blocks_[block].last_row; }

  // Claims for a member the block that is furthest behind of those that can go on; of several one of its own, whose rows are in
  // its cache. wait: all that can go on are taken.
  Next take(int member, int members, int32_t* block, int32_t* segment);
  // The claimed block has passed its segment.
  void finish(int32_t block) { blocks_[block].state.fetch_add(1, std::memory_order_release); }

 private:
  struct alignas(64) Block {
    std::atomic<int32_t> state{0};   // twice the segments it has passed, one more while a member works on the next
    int32_t first_row = 0, last_row = 0;
    int32_t needs = 0;               // the first block with rows of the sequence that its first row belongs to
  };

  int32_t passed(int32_t block) const { return blocks_[block].state.load(std::memory_order_acquire) >> 1; }
  bool can_begin(int32_t block, int32_t segment) const;

  std::unique_ptr<Block[]> blocks_;
  int32_t capacity_ = 0, size_ = 0, segments_ = 0;
};

}  // namespace octavo
