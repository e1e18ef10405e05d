// Packing: from rows as they lie in a file to the panel layout of kernels/table.h, in parallel, without a second full copy.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/thread_pool.h"
#include "weights/weights.h"

namespace octavo {

enum class FloatType : int32_t { f32, f16, bf16 };
enum class BlockFormat : int32_t { q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k };

int32_t block_columns(BlockFormat format);   // columns of one block
int32_t block_bytes(BlockFormat format);     // bytes of one block

// Rows of a matrix somewhere in memory; row_order (may be null) says which stored row is logical row i.
struct SourceRows {
  const uint8_t* data;
  int64_t row_bytes;
  const int32_t* row_order;
  int32_t rows;
  int32_t cols;
};

// Codes that something else has unpacked: codes [rows, cols], scales and mins float32 [rows, groups], where the last group of a
// row may be shorter; mins may be null.
struct CodeRows {
  const uint8_t* codes;
  const float* scales;
  const float* mins;
  int32_t rows, cols, bits, group, zero_point;
  bool scale_f16;
};

// How float values are held: rounded to `kind`; then, if `codes` is set, as codes of that kind, q8 and q4 in groups of `group`
// columns: q8 as q8_0 has them, q4 as q4_1, w8a8 with one float32 scale per output.
struct FloatStorage {
  WeightKind kind;
  std::optional<WeightKind> codes;
  int32_t group;
};

// All of these set *finite to false when a weight (float kinds), scale or minimum is NaN or infinite.
Part pack_float(const SourceRows& source, FloatType type, const FloatStorage& storage, ThreadPool& pool, bool* finite);
Part pack_blocks(const SourceRows& source, BlockFormat format, ThreadPool& pool, bool* finite);
Part pack_blocks_as_float(const SourceRows& source, BlockFormat format, const FloatStorage& storage, ThreadPool& pool,
                          bool* finite);
Part pack_codes(const CodeRows& source, ThreadPool& pool, bool* finite);

// Gives the part a bias of `rows` floats.
void set_bias(Part& part, const float* bias);

}  // namespace octavo
