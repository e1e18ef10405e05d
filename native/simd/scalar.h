// Sixteen lanes in four generic 128-bit vectors: plain C++ with the compiler's vector extension, for any machine.
// The API is described in vec.h. Included inside the namespace of the ISA unit; <cstdint> must come before.

typedef float F4 __attribute__((vector_size(16)));
typedef int32_t I4 __attribute__((vector_size(16)));

struct F16x {
  F4 a, b, c, d;
};
struct I16x {
  I4 a, b, c, d;
};
struct M16x {
  I4 a, b, c, d;
};

OCTAVO_INLINE F4 load4(const float* p) {
  F4 v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
OCTAVO_INLINE I4 load4(const int32_t* p) {
  I4 v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

// ---- float32: memory ----
OCTAVO_INLINE F16x load(const float* p) {
  return {load4(p), load4(p + 4), load4(p + 8), load4(p + 12)};
}
OCTAVO_INLINE void store(float* p, F16x x) {
  __builtin_memcpy(p, &x, sizeof x);
}
OCTAVO_INLINE F16x load_n(const float* p, int n) {
  float lanes[16] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
OCTAVO_INLINE void store_n(float* p, F16x x, int n) {
  float lanes[16];
  store(lanes, x);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
OCTAVO_INLINE F16x broadcast(float x) {
  const F4 v = {x, x, x, x};
  return {v, v, v, v};
}
OCTAVO_INLINE F16x zero() {
  return broadcast(0.0f);
}

// ---- float32: arithmetic ----
OCTAVO_INLINE F16x add(F16x x, F16x y) {
  return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d};
}
OCTAVO_INLINE F16x sub(F16x x, F16x y) {
  return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d};
}
OCTAVO_INLINE F16x mul(F16x x, F16x y) {
  return {x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d};
}
OCTAVO_INLINE F16x div(F16x x, F16x y) {
  return {x.a / y.a, x.b / y.b, x.c / y.c, x.d / y.d};
}
OCTAVO_INLINE F16x fma(F16x x, F16x y, F16x z) {
  return add(mul(x, y), z);
}
OCTAVO_INLINE F4 fma_exact4(F4 x, F4 y, F4 z) {
  return F4{__builtin_fmaf(x[0], y[0], z[0]), __builtin_fmaf(x[1], y[1], z[1]), __builtin_fmaf(x[2], y[2], z[2]),
            __builtin_fmaf(x[3], y[3], z[3])};
}
OCTAVO_INLINE F16x fma_exact(F16x x, F16x y, F16x z) {
  return {fma_exact4(x.a, y.a, z.a), fma_exact4(x.b, y.b, z.b), fma_exact4(x.c, y.c, z.c), fma_exact4(x.d, y.d, z.d)};
}
OCTAVO_INLINE F4 min4(F4 x, F4 y) {
  return x < y ? x : y;
}
OCTAVO_INLINE F4 max4(F4 x, F4 y) {
  return x > y ? x : y;
}
OCTAVO_INLINE F16x min(F16x x, F16x y) {
  return {min4(x.a, y.a), min4(x.b, y.b), min4(x.c, y.c), min4(x.d, y.d)};
}
OCTAVO_INLINE F16x max(F16x x, F16x y) {
  return {max4(x.a, y.a), max4(x.b, y.b), max4(x.c, y.c), max4(x.d, y.d)};
}
OCTAVO_INLINE F4 sqrt4(F4 x) {
  return F4{__builtin_sqrtf(x[0]), __builtin_sqrtf(x[1]), __builtin_sqrtf(x[2]), __builtin_sqrtf(x[3])};
}
OCTAVO_INLINE F16x sqrt(F16x x) {
  return {sqrt4(x.a), sqrt4(x.b), sqrt4(x.c), sqrt4(x.d)};
}

// ---- int32 ----
OCTAVO_INLINE I16x load_i32(const int32_t* p) {
  return {load4(p), load4(p + 4), load4(p + 8), load4(p + 12)};
}
OCTAVO_INLINE void store_i32(int32_t* p, I16x x) {
  __builtin_memcpy(p, &x, sizeof x);
}
OCTAVO_INLINE I16x broadcast_i32(int32_t x) {
  const I4 v = {x, x, x, x};
  return {v, v, v, v};
}
OCTAVO_INLINE I16x add(I16x x, I16x y) {
  return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d};
}
OCTAVO_INLINE I16x sub(I16x x, I16x y) {
  return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d};
}
OCTAVO_INLINE I16x mul(I16x x, I16x y) {
  return {x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d};
}
template <int kBits>
OCTAVO_INLINE I16x shift_left(I16x x) {
  return {x.a << kBits, x.b << kBits, x.c << kBits, x.d << kBits};
}

// ---- conversions ----
OCTAVO_INLINE F16x to_f32(I16x x) {
  return {__builtin_convertvector(x.a, F4), __builtin_convertvector(x.b, F4), __builtin_convertvector(x.c, F4),
          __builtin_convertvector(x.d, F4)};
}
OCTAVO_INLINE I16x as_i32(F16x x) {
  return {reinterpret_cast<I4>(x.a), reinterpret_cast<I4>(x.b), reinterpret_cast<I4>(x.c), reinterpret_cast<I4>(x.d)};
}
OCTAVO_INLINE F16x as_f32(I16x x) {
  return {reinterpret_cast<F4>(x.a), reinterpret_cast<F4>(x.b), reinterpret_cast<F4>(x.c), reinterpret_cast<F4>(x.d)};
}
OCTAVO_INLINE F16x abs(F16x x) {
  const I4 rest = {0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff};
  const I16x bits = as_i32(x);
  return as_f32(I16x{bits.a & rest, bits.b & rest, bits.c & rest, bits.d & rest});
}
// Adding 1.5 * 2^23 leaves the integer, rounded to nearest even, in the low bits of the mantissa.
OCTAVO_INLINE I16x round_i32(F16x x) {
  const F16x magic = broadcast(12582912.0f);
  return sub(as_i32(add(x, magic)), as_i32(magic));
}
// Half to float: shift into place, scale the exponent by 2^112 (exact, denormals too), then restore infinity and NaN.
OCTAVO_INLINE F4 half_to_f4(I4 half) {
  const I4 magnitude = (half & 0x7fff) << 13;
  const I4 scaled = reinterpret_cast<I4>(reinterpret_cast<F4>(magnitude) * 0x1p112f);
  const I4 special = magnitude >= 0x0f800000;
  return reinterpret_cast<F4>(scaled | (special & 0x7f800000) | ((half & 0x8000) << 16));
}
OCTAVO_INLINE I4 widen4(const uint16_t* p) {
  return I4{p[0], p[1], p[2], p[3]};
}
OCTAVO_INLINE F16x load_f16(const uint16_t* p) {
  return {half_to_f4(widen4(p)), half_to_f4(widen4(p + 4)), half_to_f4(widen4(p + 8)), half_to_f4(widen4(p + 12))};
}
OCTAVO_INLINE F16x load_bf16(const uint16_t* p) {
  return as_f32(I16x{widen4(p) << 16, widen4(p + 4) << 16, widen4(p + 8) << 16, widen4(p + 12) << 16});
}
// Round to nearest even. Below 2^-14 the half is denormal: adding 0.5 lines its last bit up with that of a float.
static uint16_t f32_to_f16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (bits >> 13 & 0x3ff));
  if (bits >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and above round to infinity
  if (bits < 0x38800000) {
    float magnitude;
    __builtin_memcpy(&magnitude, &bits, sizeof magnitude);
    magnitude += 0.5f;
    __builtin_memcpy(&bits, &magnitude, sizeof bits);
    return static_cast<uint16_t>(sign | (bits - 0x3f000000));
  }
  bits += 0xfff + (bits >> 13 & 1);
  return static_cast<uint16_t>(sign | ((bits - 0x38000000) >> 13));
}
static uint16_t f32_to_bf16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
OCTAVO_INLINE void store_f16(uint16_t* p, F16x x) {
  float lanes[16];
  store(lanes, x);
  for (int i = 0; i < 16; ++i) p[i] = f32_to_f16(lanes[i]);
}
OCTAVO_INLINE void store_bf16(uint16_t* p, F16x x) {
  float lanes[16];
  store(lanes, x);
  for (int i = 0; i < 16; ++i) p[i] = f32_to_bf16(lanes[i]);
}
OCTAVO_INLINE I16x load_i8(const int8_t* p) {
  int32_t lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = p[i];
  return load_i32(lanes);
}
OCTAVO_INLINE void store_i8(int8_t* p, I16x x) {
  int32_t lanes[16];
  store_i32(lanes, x);
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(lanes[i] < -128 ? -128 : lanes[i] > 127 ? 127 : lanes[i]);
}

// ---- masks ----
OCTAVO_INLINE M16x less(F16x x, F16x y) {
  return {x.a < y.a, x.b < y.b, x.c < y.c, x.d < y.d};
}
OCTAVO_INLINE M16x less_equal(F16x x, F16x y) {
  return {x.a <= y.a, x.b <= y.b, x.c <= y.c, x.d <= y.d};
}
OCTAVO_INLINE M16x equal(F16x x, F16x y) {
  return {x.a == y.a, x.b == y.b, x.c == y.c, x.d == y.d};
}
OCTAVO_INLINE F16x select(M16x m, F16x yes, F16x no) {
  return {m.a ? yes.a : no.a, m.b ? yes.b : no.b, m.c ? yes.c : no.c, m.d ? yes.d : no.d};
}
OCTAVO_INLINE uint32_t mask_bits(M16x m) {
  int32_t lanes[16];
  __builtin_memcpy(lanes, &m, sizeof lanes);
  uint32_t bits = 0;
  for (int i = 0; i < 16; ++i) bits |= static_cast<uint32_t>(lanes[i] & 1) << i;
  return bits;
}

// ---- across lanes: halves 8, 4, 2, 1, the order of every ISA ----
OCTAVO_INLINE float reduce_add(F16x x) {
  const F4 four = (x.a + x.c) + (x.b + x.d);
  return (four[0] + four[2]) + (four[1] + four[3]);
}
OCTAVO_INLINE float reduce_max(F16x x) {
  const F4 four = max4(max4(x.a, x.c), max4(x.b, x.d));
  const float even = four[0] > four[2] ? four[0] : four[2];
  const float odd = four[1] > four[3] ? four[1] : four[3];
  return even > odd ? even : odd;
}
OCTAVO_INLINE int32_t reduce_add_i32(I16x x) {
  const I4 four = (x.a + x.c) + (x.b + x.d);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

OCTAVO_INLINE void prefetch(const void* p) {
  __builtin_prefetch(p, 0, 3);
}
OCTAVO_INLINE void prefetch_l2(const void* p) {
  __builtin_prefetch(p, 0, 2);
}

// ---- GEMM tiles: rows per full tile, panels beside each other in a tile of that many rows ----
// Sized for 16 registers, four to a panel.
constexpr int kFloatMaxRows = 3;
constexpr int kQuantMaxRows = 2;
constexpr int kStreamRows = 1;
constexpr int float_panels(int rows) {
  return rows == 1 ? 2 : 1;
}
constexpr int quant_panels(int) {
  return 1;
}
constexpr int kChannelMaxRows = kQuantMaxRows;
constexpr int channel_panels(int) {
  return 1;
}

// ---- int8 products (see gemm_quant.h): out += sum over 4 * kSteps columns of code * a, exact ----
// Codes are taken as nibbles, 16 * high + low: a product is within 15 * 128, so the eight steps of a group of 32 add up in
// int16 (15360), four outputs x four columns a time, before widening.
typedef int16_t S8 __attribute__((vector_size(16)));
typedef uint8_t B16 __attribute__((vector_size(16)));

OCTAVO_INLINE S8 widen_low(B16 x) {
  const B16 none = {};
  return reinterpret_cast<S8>(__builtin_shufflevector(x, none, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
}
OCTAVO_INLINE S8 widen_high(B16 x) {
  const B16 none = {};
  return reinterpret_cast<S8>(
      __builtin_shufflevector(x, none, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
}
// Four int8 as int16, twice.
OCTAVO_INLINE S8 four_columns(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, 4);
  const B16 bytes = reinterpret_cast<B16>(I4{four, four, four, four});
  const B16 doubled = __builtin_shufflevector(bytes, bytes, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  return reinterpret_cast<S8>(doubled) >> 8;
}
// Sums of neighbours as int32.
OCTAVO_INLINE I4 add_pairs(S8 x) {
  const I4 both = reinterpret_cast<I4>(x);
  return (both << 16 >> 16) + (both >> 16);
}

// Outputs 4 * q .. 4 * q + 3 of one panel; codes points at the first of their bytes.
template <int kBits, int kSteps, int R>
OCTAVO_INLINE void dot_four(const uint8_t* codes, const int8_t* const (&a)[R], I4 (&sum)[R]) {
  constexpr int kChains = kBits == 8 ? 2 : 1;
  S8 chain[R][kChains][2] = {};
#pragma GCC unroll 8
  for (int s = 0; s < kSteps; ++s) {
    B16 both;
    __builtin_memcpy(&both, codes + 64 * (kBits == 8 ? s : s / 2), sizeof both);
    B16 nibbles[kChains];
    nibbles[0] = kBits == 8 || s % 2 == 0 ? both & 15 : both >> 4;
    if (kBits == 8) nibbles[kChains - 1] = both >> 4;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const S8 x = four_columns(a[r] + 4 * s);
#pragma GCC unroll 2
      for (int c = 0; c < kChains; ++c) {
        chain[r][c][0] += widen_low(nibbles[c]) * x;
        chain[r][c][1] += widen_high(nibbles[c]) * x;
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    I4 low = add_pairs(chain[r][0][0]), high = add_pairs(chain[r][0][1]);
    if (kBits == 8) {
      low += add_pairs(chain[r][kChains - 1][0]) << 4;
      high += add_pairs(chain[r][kChains - 1][1]) << 4;
    }
    sum[r] = __builtin_shufflevector(low, high, 0, 2, 4, 6) + __builtin_shufflevector(low, high, 1, 3, 5, 7);
  }
}

template <int kBits, int kSteps, int R, int P>
OCTAVO_INLINE void dot_rows(const uint8_t* const (&codes)[P], const int8_t* const (&a)[R], I16x (&out)[R][P]) {
  for (int p = 0; p < P; ++p) {
    I4 sum[4][R];
    for (int q = 0; q < 4; ++q) dot_four<kBits, kSteps, R>(codes[p] + 16 * q, a, sum[q]);
    for (int r = 0; r < R; ++r) out[r][p] = add(out[r][p], I16x{sum[0][r], sum[1][r], sum[2][r], sum[3][r]});
  }
}
constexpr int kVectorRegisters = 4;  // F16x that the register file holds
