#include "tape/swap_space.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace octavo {
namespace {

constexpr int kMaxPieces = 256;   // of one system call; IOV_MAX is 1024 on Linux and at least 16 anywhere

// preadv or pwritev until all of pieces[0..count) is done; 0 or errno.
template <class Call>
int32_t transfer(Call call, int descriptor, iovec* pieces, int count, off_t offset) {
  while (count > 0) {
    const ssize_t done = call(descriptor, pieces, count, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    if (done == 0) return EIO;   // the file ends before the slot: somebody cut it
    offset += done;
    size_t left = static_cast<size_t>(done);
    while (count > 0 && left >= pieces->iov_len) {
      left -= pieces->iov_len;
      ++pieces;
      --count;
    }
    if (count > 0) {
      pieces->iov_base = static_cast<uint8_t*>(pieces->iov_base) + left;
      pieces->iov_len -= left;
    }
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
  const size_t bytes = cache.all_layers_bytes();
  std::vector<uint8_t> buffer(descriptor_ < 0 ? 0 : bytes);
  for (size_t i = 0; i < count; ++i) {
    const size_t source = static_cast<size_t>(moves[i].source) * bytes, target = static_cast<size_t>(moves[i].target) * bytes;
    if (descriptor_ < 0) {
      std::memcpy(memory_.data() + target, memory_.data() + source, bytes);
      errors[i] = 0;
      continue;
    }
    iovec piece{buffer.data(), bytes};
    errors[i] = transfer(preadv, descriptor_, &piece, 1, static_cast<off_t>(file_offset_ + source));
    piece = {buffer.data(), bytes};
    if (errors[i] == 0) errors[i] = transfer(pwritev, descriptor_, &piece, 1, static_cast<off_t>(file_offset_ + target));
  }
}

void SwapSpace::resize(size_t bytes) {
  if (descriptor_ < 0) memory_.resize(bytes);
  bytes_ = bytes;
}

int32_t SwapSpace::move(KvCache& cache, BlockMove move, Direction direction) const {
  const size_t start = static_cast<size_t>(move.slot) * cache.all_layers_bytes();
  const size_t bytes = cache.block_bytes();
  const int32_t num_pieces = cache.num_pieces();
  if (descriptor_ < 0) {
    uint8_t* slot = memory_.data() + start;
    for (int32_t i = 0; i < num_pieces; ++i, slot += bytes) {
      uint8_t* piece = cache.piece(move.block, i);
      if (direction == Direction::out) {
        std::memcpy(slot, piece, bytes);
      } else {
        std::memcpy(piece, slot, bytes);
      }
    }
    return 0;
  }
  iovec pieces[kMaxPieces];
  for (int32_t first = 0; first < num_pieces; first += kMaxPieces) {
    const int count = std::min(kMaxPieces, num_pieces - first);
    for (int i = 0; i < count; ++i) pieces[i] = {cache.piece(move.block, first + i), bytes};
    const off_t offset = static_cast<off_t>(file_offset_ + start + static_cast<size_t>(first) * bytes);
    const int32_t error = direction == Direction::out ? transfer(pwritev, descriptor_, pieces, count, offset)
                                                      : transfer(preadv, descriptor_, pieces, count, offset);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace octavo
