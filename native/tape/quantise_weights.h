// Rounding rows of float weights to block formats at load: q8_0 (int8) and q4_1 (int4), as codes and scales like decode_row's.
#pragma once

#include <cstdint>

namespace octavo {

// One row of `cols` floats (a multiple of 32) as q8_0: codes [cols] with zero point 128, scales [cols / 32] exact in float16.
// Bits equal octavo.loader.formats.quantise_q8_0. A group with a NaN, an infinity or a scale above float16's range gets a scale
// that is not finite.
void quantise_row_q8_0(const float* values, int32_t cols, uint8_t* codes, float* scales);

// One row as q4_1: value = scale * code + min, codes [cols] in 0..15, scales and mins [cols / 32] exact in float16, chosen for a
// small squared error. Bits equal octavo.loader.formats.quantise_q4_1. Non-finite values as above.
void quantise_row_q4_1(const float* values, int32_t cols, uint8_t* codes, float* scales, float* mins);

}  // namespace octavo
