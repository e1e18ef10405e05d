// GGUF block formats as integer codes with group scales: value = scale * (code - zero_point) + min, exact in float32.
#pragma once

#include <cstdint>

#include "weights/pack.h"

namespace octavo {

struct CodeLayout {
  WeightKind kind;      // q8, q4 or w8a8: the storage of a code
  int32_t group;        // columns per scale
  int32_t zero_point;
  bool scale_f16;       // all scales and mins are exact in float16
  bool has_min;
};

CodeLayout layout_of(BlockFormat format);

// One row of `cols` columns: codes [cols], scales and mins [cols / group] (mins untouched when the format has none).
void decode_row(BlockFormat format, const uint8_t* row, int32_t cols, uint8_t* codes, float* scales, float* mins);

}  // namespace octavo
