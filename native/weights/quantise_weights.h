// Rounding rows of float weights to codes at load, as codes and scales like decode_row's.
#pragma once

#include <cstdint>

#include "weights/decode.h"

namespace octavo {

// One row of `cols` floats (a multiple of 32): codes [cols]; scales and, with layout.has_min, mins for each layout.group
// columns, 32, 64, 128 or all (without mins); the last group may be shorter. Exact in float16 with ScaleKind::f16.
//   8 bits   code = value / scale, rounded, + 128; scale = max|value| / 127
//   4 bits   value = scale * code + min, codes in 0..15, chosen for a small squared error
// Bits equal those of octavo.loader.formats.quantise. A group with a NaN, an infinity or a scale beyond the tables' range gets a
// scale that is not finite.
void quantise_row(const float* values, int32_t cols, const CodeLayout& layout, uint8_t* codes, float* scales, float* mins);

}  // namespace octavo
