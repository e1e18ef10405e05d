// Layouts: the ggml block structures as documented by the GGUF specification; the numpy twin is octavo.loader.formats.unpack.
#include "weights/decode.h"

#include <cstring>

#include "weights/half.h"

namespace octavo {
namespace {

uint16_t bits_at(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return bits;
}

float half_at(const uint8_t* at) { return f16_to_float(bits_at(at)); }

// q8_0 {f16 d; int8 q[32]}
void decode_q8_0(const uint8_t* block, uint8_t* codes, float* scale) {
  *scale = half_at(block);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(block[2 + i] ^ 0x80u);   // q + 128
}

void split_nibbles(const uint8_t* packed, uint8_t* low, uint8_t* high, int count) {
  for (int i = 0; i < count; ++i) {
    low[i] = packed[i] & 15u;
    high[i] = packed[i] >> 4;
  }
}

// The fifth bits of q5_0 and q5_1: bit i of a 32-bit word belongs to element i.
void add_fifth_bits(const uint8_t* at, uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, at, 4);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (((bits >> i) & 1u) << 4));
}

// The 6-bit scale and minimum of sub-block j of q4_k and q5_k, packed in 12 bytes.
void unpack_steps(const uint8_t* packed, int j, int8_t* scale, int8_t* min) {
  if (j < 4) {
    *scale = static_cast<int8_t>(packed[j] & 63u);
    *min = static_cast<int8_t>(packed[j + 4] & 63u);
  } else {
    *scale = static_cast<int8_t>((packed[j + 4] & 15u) | ((packed[j - 4] >> 6) << 4));
    *min = static_cast<int8_t>((packed[j + 4] >> 4) | ((packed[j] >> 6) << 4));
  }
}

// q4_k {f16 d, dmin; u8 scales[12]; u8 q[128]}, q5_k {...; u8 scales[12]; u8 high[32]; u8 q[128]}
void decode_q45_k(const uint8_t* block, bool fifth, uint8_t* codes) {
  const uint8_t* high = block + 16;
  const uint8_t* q = block + (fifth ? 48 : 16);
  for (int j = 0; j < 4; ++j) {
    uint8_t* out = codes + 64 * j;
    split_nibbles(q + 32 * j, out, out + 32, 32);
    if (!fifth) continue;
    for (int i = 0; i < 32; ++i) {
      out[i] = static_cast<uint8_t>(out[i] | (((high[i] >> (2 * j)) & 1u) << 4));
      out[32 + i] = static_cast<uint8_t>(out[32 + i] | (((high[i] >> (2 * j + 1)) & 1u) << 4));
    }
  }
}

// q6_k {u8 low[128]; u8 high[64]; int8 scales[16]; f16 d}
void decode_q6_k(const uint8_t* block, uint8_t* codes) {
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = block + 64 * half;
    const uint8_t* high = block + 128 + 32 * half;
    uint8_t* out = codes + 128 * half;
    for (int i = 0; i < 32; ++i) {
      out[i] = static_cast<uint8_t>((low[i] & 15u) | ((high[i] & 3u) << 4));
      out[i + 32] = static_cast<uint8_t>((low[i + 32] & 15u) | (((high[i] >> 2) & 3u) << 4));
      out[i + 64] = static_cast<uint8_t>((low[i] >> 4) | (((high[i] >> 4) & 3u) << 4));
      out[i + 96] = static_cast<uint8_t>((low[i + 32] >> 4) | ((high[i] >> 6) << 4));
    }
  }
}

void decode_block_32(BlockFormat format, const uint8_t* block, uint8_t* codes, float* scale, float* min) {
  switch (format) {
    case BlockFormat::q8_0: decode_q8_0(block, codes, scale); return;
    case BlockFormat::q4_0:
      *scale = half_at(block);
      split_nibbles(block + 2, codes, codes + 16, 16);
      return;
    case BlockFormat::q4_1:
      *scale = half_at(block);
      *min = half_at(block + 2);
      split_nibbles(block + 4, codes, codes + 16, 16);
      return;
    case BlockFormat::q5_0:
      *scale = half_at(block);
      split_nibbles(block + 6, codes, codes + 16, 16);
      add_fifth_bits(block + 2, codes);
      return;
    case BlockFormat::q5_1:
      *scale = half_at(block);
      *min = half_at(block + 2);
      split_nibbles(block + 8, codes, codes + 16, 16);
      add_fifth_bits(block + 4, codes);
      return;
    default: return;
  }
}

}  // namespace

int32_t block_bytes(BlockFormat format) {
  switch (format) {
    case BlockFormat::q8_0: return 34;
    case BlockFormat::q4_0: return 18;
    case BlockFormat::q4_1: return 20;
    case BlockFormat::q5_0: return 22;
    case BlockFormat::q5_1: return 24;
    case BlockFormat::q4_k: return 144;
    case BlockFormat::q5_k: return 176;
    case BlockFormat::q6_k: return 210;
  }
  return 0;
}

int32_t block_columns(BlockFormat format) {
  const bool is_k = format == BlockFormat::q4_k || format == BlockFormat::q5_k || format == BlockFormat::q6_k;
  return is_k ? 256 : 32;
}

CodeLayout layout_of(BlockFormat format) {
  switch (format) {
    case BlockFormat::q8_0: return {WeightKind::q8, 32, 128, ScaleKind::f16, false};
    case BlockFormat::q4_0: return {WeightKind::q4, 32, 8, ScaleKind::f16, false};
    case BlockFormat::q4_1: return {WeightKind::q4, 32, 0, ScaleKind::f16, true};
    case BlockFormat::q5_0: return {WeightKind::q8, 32, 16, ScaleKind::f16, false};
    case BlockFormat::q5_1: return {WeightKind::q8, 32, 0, ScaleKind::f16, true};
    case BlockFormat::q4_k: return {WeightKind::q4, 32, 0, ScaleKind::steps, true};
    case BlockFormat::q5_k: return {WeightKind::q8, 32, 0, ScaleKind::steps, true};
    case BlockFormat::q6_k: return {WeightKind::q8, 16, 32, ScaleKind::steps, false};
  }
  return {};
}

BlockScales block_scales(BlockFormat format, const uint8_t* block) {
  BlockScales scales{};
  if (format == BlockFormat::q6_k) {
    scales.unit = bits_at(block + 208);
    std::memcpy(scales.steps, block + 192, 16);
    return scales;
  }
  scales.unit = bits_at(block);
  scales.min_unit = static_cast<uint16_t>(bits_at(block + 2) ^ 0x8000u);   // the file subtracts minimums
  for (int j = 0; j < 8; ++j) unpack_steps(block + 4, j, scales.steps + j, scales.min_steps + j);
  return scales;
}

void decode_row(BlockFormat format, const uint8_t* row, int32_t cols, uint8_t* codes, float* scales, float* mins) {
  const int32_t bytes = block_bytes(format);
  const int32_t width = block_columns(format);
  const bool is_k = width == 256;
  const int32_t groups = width / layout_of(format).group;
  for (int32_t b = 0; b < cols / width; ++b) {
    const uint8_t* block = row + static_cast<int64_t>(b) * bytes;
    uint8_t* out = codes + b * width;
    if (!is_k) {
      decode_block_32(format, block, out, scales + b, mins + b);
      continue;
    }
    if (format == BlockFormat::q6_k) decode_q6_k(block, out);
    else decode_q45_k(block, format == BlockFormat::q5_k, out);
    const BlockScales found = block_scales(format, block);
    for (int32_t g = 0; g < groups; ++g) {
      scales[b * groups + g] = f16_to_float(found.unit) * found.steps[g];
      if (format != BlockFormat::q6_k) mins[b * groups + g] = f16_to_float(found.min_unit) * found.min_steps[g];
    }
  }
}

}  // namespace octavo
