// GGUF block formats as integer codes with group scales: value = scale * (code - zero_point) + min, exact in float32.
#pragma once

#include <cstdint>

#include "weights/pack.h"

namespace octavo {

struct CodeLayout {
  WeightKind kind;      // q8, q4 or w8a8: the storage of a code
  int32_t group;        // columns per scale
  int32_t zero_point;
  ScaleKind scale_kind;   // f16: all scales and mins are exact in float16
  bool has_min;
};

CodeLayout layout_of(BlockFormat format);

// The scales and minimums of one block of 256 columns of a k-quant: unit * step each, the units as float16 bits.
struct BlockScales {
  uint16_t unit, min_unit;
  int8_t steps[kScaleSpan / 16], min_steps[kScaleSpan / 16];
};
// Of q4_k, q5_k and q6_k, which have no minimums.
BlockScales block_scales(BlockFormat format, const uint8_t* block);

// One row of `cols` columns: codes [cols], scales and mins [cols / group] (mins untouched when the format has none).
void decode_row(BlockFormat format, const uint8_t* row, int32_t cols, uint8_t* codes, float* scales, float* mins);

}  // namespace octavo
