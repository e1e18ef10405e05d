#include "tape/swap_space.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace octavo {
namespace {

// pread or pwrite until all bytes are done; 0 or errno.
template <class Call>
int32_t transfer(Call call, int descriptor, uint8_t* data, size_t bytes, off_t offset) {
  while (bytes > 0) {
    const ssize_t done = call(descriptor, data, bytes, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    if (done == 0) return EIO;   // the file ends before the slot: somebody cut it
    data += done;
    bytes -= static_cast<size_t>(done);
    offset += done;
  }
  return 0;
}

}  // namespace

void SwapSpace::out(KvCache& cache, const BlockMove* moves, size_t count, int32_t* errors, ThreadPool& pool) const {
  move_all(cache, moves, count, errors, pool, Direction::out);
}

void SwapSpace::in(KvCache& cache, const BlockMove* moves, size_t count, int32_t* errors, ThreadPool& pool) const {
  move_all(cache, moves, count, errors, pool, Direction::in);
}

void SwapSpace::move_all(KvCache& cache, const BlockMove* moves, size_t count, int32_t* errors, ThreadPool& pool,
                         Direction direction) const {
  if (count == 1) {   // the usual step: waking the helpers would take longer than they could save
    errors[0] = move(cache, moves[0], direction);
    return;
  }
  const size_t members = static_cast<size_t>(pool.size());
  pool.run([&](int member) {
    for (size_t i = static_cast<size_t>(member); i < count; i += members) errors[i] = move(cache, moves[i], direction);
  });
}

void SwapSpace::shift(const KvCache& cache, const SlotMove* moves, size_t count, int32_t* errors) const {
  const size_t bytes = cache.block_bytes();
  std::vector<uint8_t> buffer(descriptor_ < 0 ? 0 : bytes);
  for (size_t i = 0; i < count; ++i) {
    const size_t source = static_cast<size_t>(moves[i].source) * bytes, target = static_cast<size_t>(moves[i].target) * bytes;
    if (descriptor_ < 0) {
      std::memcpy(memory_.data() + target, memory_.data() + source, bytes);
      errors[i] = 0;
      continue;
    }
    errors[i] = transfer(pread, descriptor_, buffer.data(), bytes, static_cast<off_t>(file_offset_ + source));
    if (errors[i] != 0) continue;
    errors[i] = transfer(pwrite, descriptor_, buffer.data(), bytes, static_cast<off_t>(file_offset_ + target));
  }
}

void SwapSpace::resize(size_t bytes) {
  if (descriptor_ < 0) memory_.resize(bytes);
  bytes_ = bytes;
}

int32_t SwapSpace::move(KvCache& cache, BlockMove move, Direction direction) const {
  const size_t bytes = cache.block_bytes(), start = static_cast<size_t>(move.slot) * bytes;
  uint8_t* const block = cache.block(move.block);
  if (descriptor_ >= 0) {
    const off_t offset = static_cast<off_t>(file_offset_ + start);
    return direction == Direction::out ? transfer(pwrite, descriptor_, block, bytes, offset)
                                       : transfer(pread, descriptor_, block, bytes, offset);
  }
  uint8_t* const slot = memory_.data() + start;
  if (direction == Direction::out) {
    std::memcpy(slot, block, bytes);
  } else {
    std::memcpy(block, slot, bytes);
  }
  return 0;
}

}  // namespace octavo
