// Parameters in the layout that the kernels read: linear weights in panels, vectors, rope tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/table.h"
#include "runtime/memory.h"

namespace octavo {

// One packed matrix and the memory it lies in.
struct Part {
  PackedMatrix matrix{};
  Block data, scales, mins, bias;
  int32_t out_column = 0;   // first output column of this part in the whole weight

  size_t bytes() const { return data.bytes() + scales.bytes() + mins.bytes() + bias.bytes(); }
  bool is_quantised() const { return has_codes(matrix.kind); }
};

// A linear weight [rows, cols]: the outputs of its parts one after the other.
struct Linear {
  std::vector<Part> parts;
  int32_t rows = 0;
  int32_t cols = 0;
  // Empty, or [cols]: column i of the codes is multiplied with column column_order[i] of the input. Parts of floats are in order.
  std::vector<int32_t> column_order;

  Linear() = default;
  Linear(const Linear&) = delete;

  void append(Part part) {
    part.out_column = rows;
    rows += part.matrix.rows;
    cols = part.matrix.cols;
    parts.push_back(std::move(part));
  }
  size_t bytes() const {
    size_t total = 0;
    for (const Part& part : parts) total += part.bytes();
    return total;
  }
};

struct Vector {
  Block data;
  int32_t size = 0;
};

// Cosines and sines [positions][half], half = rotary_dim / 2.
struct RopeTable {
  Block cos, sin;
  int32_t positions = 0;
  int32_t half = 0;
};

}  // namespace octavo
