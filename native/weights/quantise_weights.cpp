// Every float sum runs in one fixed order and nothing is fused (-ffp-contract=off), so the numpy twins give the same bits.
#include "weights/quantise_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "weights/half.h"

namespace octavo {
namespace {

constexpr int kPiece = 32;                      // values that are handled side by side; groups consist of pieces
constexpr int kMaxPieces = 4;                   // of a 4-bit group
constexpr float kTop = 15.0f;                   // largest 4-bit code
constexpr int kCandidates = 9;                  // steps tried per group: range / 14, range / 14.25, .. range / 16
constexpr float kFirstSteps = 14.0f;
constexpr float kStepOfSteps = 0.25f;
constexpr float kLargestRange = 65504.0f * kTop;   // of a step that float16 can hold
constexpr float kSmallestRange = 1.4901161193847656e-08f;   // 2^-26: float16 could hold no step of a smaller range

// Four values side by side; GCC and Clang map them to the machine's vectors, and each lane computes what a scalar would.
typedef float F4 __attribute__((vector_size(16)));
typedef int32_t I4 __attribute__((vector_size(16)));
constexpr int kVectors = kPiece / 4;
using Piece = F4[kVectors];   // vector k holds values 4 k .. 4 k + 3

I4 bits_of(F4 values) {
  I4 bits;
  std::memcpy(&bits, &values, sizeof bits);
  return bits;
}

F4 all(float value) { return F4{value, value, value, value}; }
F4 smaller(F4 a, F4 b) { return a < b ? a : b; }
F4 larger(F4 a, F4 b) { return a > b ? a : b; }
I4 truncated(F4 values) { return __builtin_convertvector(values, I4); }
F4 widened(I4 values) { return __builtin_convertvector(values, F4); }

void load_piece(const float* values, Piece& piece) { std::memcpy(&piece, values, sizeof piece); }

void store_codes(const I4* vectors, uint8_t* codes) {
  int32_t values[kPiece];
  std::memcpy(values, vectors, sizeof values);
  for (int i = 0; i < kPiece; ++i) codes[i] = static_cast<uint8_t>(values[i]);
}

// Bits of the largest magnitude; 0x7f800000 or more when one value is NaN or infinite.
int32_t largest_magnitude(const float* values, int32_t size) {
  I4 largest{};
  for (int32_t i = 0; i < size; i += kPiece) {
    Piece x;
    load_piece(values + i, x);
    for (int k = 0; k < kVectors; ++k) {
      const I4 magnitude = bits_of(x[k]) & 0x7fffffff;
      largest = magnitude > largest ? magnitude : largest;
    }
  }
  return std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3]));
}

bool is_finite_magnitude(int32_t bits) { return bits < 0x7f800000; }

float through_f16(float value) { return f16_to_float(float_to_f16(value)); }

// Returns the scale.
float quantise_group_8(const float* values, int32_t size, uint8_t* codes) {
  const int32_t largest = largest_magnitude(values, size);
  if (!is_finite_magnitude(largest)) return std::numeric_limits<float>::quiet_NaN();
  const float scale = bits_to_float(static_cast<uint32_t>(largest)) / 127.0f;
  // Where 1 / scale overflows, the values are next to nothing and become 0.
  const float unguarded = 1.0f / scale;
  const F4 inverse = all(unguarded <= std::numeric_limits<float>::max() ? unguarded : 0.0f);
  for (int32_t i = 0; i < size; i += kPiece) {
    Piece x;
    load_piece(values + i, x);
    I4 out[kVectors];
    for (int k = 0; k < kVectors; ++k) {
      const F4 scaled = x[k] * inverse;
      const F4 magnitude = larger(scaled, -scaled);
      const I4 floor = truncated(magnitude);
      const I4 whole = floor - (magnitude - widened(floor) >= 0.5f);   // true is -1: halves round away from zero
      out[k] = (scaled < 0.0f ? -whole : whole) + 128;
    }
    store_codes(out, codes + i);
  }
  return scale;
}

// The sum of 32 floats by halving: i + (i + 16), then i + (i + 8), ...
float halving_sum(const Piece& x) {
  const F4 sum = ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

// The step and offset of the least-squares line through (code, y) when y >= 0 is cut into `per_unit` codes per unit.
struct Line {
  float step, offset;
  float gain;   // by how much the line lowers the sum of squares; the best candidate has the largest
};

Line fit(const Piece* y, int pieces, float sum_y, float per_unit) {
  const float size = static_cast<float>(kPiece * pieces);
  float sum = 0.0f, sum_squares = 0.0f, sum_products = 0.0f;   // the first two are whole numbers below 2^24: exact
  for (int piece = 0; piece < pieces; ++piece) {
    Piece codes, squares, products;
    for (int k = 0; k < kVectors; ++k) {
      codes[k] = widened(truncated(smaller(y[piece][k] * per_unit, all(kTop)) + 0.5f));
      squares[k] = codes[k] * codes[k];
      products[k] = y[piece][k] * codes[k];
    }
    sum += halving_sum(codes);
    sum_squares += halving_sum(squares);
    sum_products += halving_sum(products);
  }
  Line line;
  line.step = (size * sum_products - sum_y * sum) / (size * sum_squares - sum * sum);
  line.offset = (sum_y - line.step * sum) / size;
  line.gain = line.step * sum_products + line.offset * sum_y;
  return line;
}

// The line of the best candidate, its offset from `low`; y holds value - low.
Line best_line(const Piece* y, int pieces, float range) {
  Line best{0.0f, 0.0f, -1.0f};
  if (range < kSmallestRange) return best;
  float sum_y = 0.0f;
  for (int piece = 0; piece < pieces; ++piece) sum_y += halving_sum(y[piece]);
  for (int candidate = 0; candidate < kCandidates; ++candidate) {
    const Line line = fit(y, pieces, sum_y, (kFirstSteps + kStepOfSteps * static_cast<float>(candidate)) / range);
    if (line.gain > best.gain) best = line;
  }
  return best;
}

void quantise_group_4(const float* values, int32_t size, uint8_t* codes, float* scale, float* min) {
  *scale = *min = std::numeric_limits<float>::quiet_NaN();
  if (!is_finite_magnitude(largest_magnitude(values, size))) return;
  const int pieces = size / kPiece;
  Piece x[kMaxPieces], y[kMaxPieces];
  std::memcpy(x, values, static_cast<size_t>(size) * sizeof(float));
  F4 lows = x[0][0], highs = x[0][0];
  for (int i = 1; i < pieces * kVectors; ++i) {
    lows = smaller(lows, x[i / kVectors][i % kVectors]);
    highs = larger(highs, x[i / kVectors][i % kVectors]);
  }
  const float low = std::min(std::min(lows[0], lows[1]), std::min(lows[2], lows[3]));
  const float range = std::max(std::max(highs[0], highs[1]), std::max(highs[2], highs[3])) - low;
  if (range > kLargestRange) return;
  for (int piece = 0; piece < pieces; ++piece) {
    for (int k = 0; k < kVectors; ++k) y[piece][k] = x[piece][k] - low;
  }
  const Line best = best_line(y, pieces, range);
  *scale = through_f16(best.step);
  *min = through_f16(low + best.offset);
  if (std::isinf(*scale) || std::isinf(*min)) return;
  const float inverse = *scale > 0.0f ? 1.0f / *scale : 0.0f;
  for (int piece = 0; piece < pieces; ++piece) {
    I4 out[kVectors];
    for (int k = 0; k < kVectors; ++k)
      out[k] = truncated(smaller(larger((x[piece][k] - *min) * inverse, all(0.0f)), all(kTop)) + 0.5f);
    store_codes(out, codes + piece * kPiece);
  }
}

}  // namespace

void quantise_row(const float* values, int32_t cols, const CodeLayout& layout, uint8_t* codes, float* scales, float* mins) {
  for (int32_t first = 0, g = 0; first < cols; first += layout.group, ++g) {
    const int32_t size = std::min(layout.group, cols - first);
    if (layout.kind == WeightKind::q4) {
      quantise_group_4(values + first, size, codes + first, scales + g, mins + g);
    } else {
      const float scale = quantise_group_8(values + first, size, codes + first);
      scales[g] = layout.scale_kind == ScaleKind::f16 ? through_f16(scale) : scale;
    }
  }
}

}  // namespace octavo
