// Ahead: weights that a member of the pool fetches while it waits for the others at a barrier, so that memory is not idle.
#pragma once

#include <algorithm>
#include <cstddef>

#include "weights/weights.h"

namespace octavo {

class Ahead {
 public:
  Ahead() = default;   // nothing to fetch

  // Codes or values of panels [first, last) of one matrix, as much as a part of the L2 cache holds.
  Ahead(const PackedMatrix& matrix, int32_t first, int32_t last) {
    next_ = static_cast<const char*>(matrix.data) + first * panel_bytes(matrix);
    end_ = next_ + std::min((last - first) * panel_bytes(matrix), kMostBytes);
  }

  // A few cache lines: short enough to look at the barrier between two calls.
  void fetch() {
    for (int line = 0; line < kLines && next_ < end_; ++line, next_ += 64) __builtin_prefetch(next_, 0, 2);
  }

 private:
  static constexpr int64_t kMostBytes = 128 << 10;
  static constexpr int kLines = 8;

  const char* next_ = nullptr;
  const char* end_ = nullptr;
};

}  // namespace octavo
