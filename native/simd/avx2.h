// Sixteen lanes in two ymm registers: AVX2, FMA and F16C. The API is described in vec.h.
// Included inside the namespace of the ISA unit; <immintrin.h> and <cstdint> must come before.

struct F16x {
  __m256 lo, hi;
};
struct I16x {
  __m256i lo, hi;
};
struct M16x {
  __m256 lo, hi;
};

// Lanes below n set, of the eight lanes from first on.
OCTAVO_INLINE __m256i lane_mask(int n, int first) {
  const __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
}

// ---- float32: memory ----
OCTAVO_INLINE F16x load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
OCTAVO_INLINE F16x load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, lane_mask(n, 0)), _mm256_maskload_ps(p + 8, lane_mask(n, 8))};
}
OCTAVO_INLINE void store(float* p, F16x a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
OCTAVO_INLINE void store_n(float* p, F16x a, int n) {
  _mm256_maskstore_ps(p, lane_mask(n, 0), a.lo);
  _mm256_maskstore_ps(p + 8, lane_mask(n, 8), a.hi);
}
OCTAVO_INLINE F16x zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
OCTAVO_INLINE F16x broadcast(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

// ---- float32: arithmetic ----
OCTAVO_INLINE F16x add(F16x a, F16x b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
OCTAVO_INLINE F16x sub(F16x a, F16x b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
OCTAVO_INLINE F16x mul(F16x a, F16x b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
OCTAVO_INLINE F16x div(F16x a, F16x b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
OCTAVO_INLINE F16x fma(F16x a, F16x b, F16x c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
OCTAVO_INLINE F16x fma_exact(F16x a, F16x b, F16x c) {
  return fma(a, b, c);
}
OCTAVO_INLINE F16x min(F16x a, F16x b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
OCTAVO_INLINE F16x max(F16x a, F16x b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
OCTAVO_INLINE F16x sqrt(F16x a) {
  return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)};
}
OCTAVO_INLINE F16x abs(F16x a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}

// ---- int32 ----
OCTAVO_INLINE I16x load_i32(const int32_t* p) {
  const __m256i* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
OCTAVO_INLINE void store_i32(int32_t* p, I16x a) {
  __m256i* q = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(q, a.lo);
  _mm256_storeu_si256(q + 1, a.hi);
}
OCTAVO_INLINE I16x broadcast_i32(int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
OCTAVO_INLINE I16x add(I16x a, I16x b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
OCTAVO_INLINE I16x sub(I16x a, I16x b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
OCTAVO_INLINE I16x mul(I16x a, I16x b) {
  return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)};
}
template <int kBits>
OCTAVO_INLINE I16x shift_left(I16x a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}

// ---- conversions ----
OCTAVO_INLINE F16x to_f32(I16x a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
OCTAVO_INLINE I16x round_i32(F16x a) {
  return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
}
OCTAVO_INLINE I16x as_i32(F16x a) {
  return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}
OCTAVO_INLINE F16x as_f32(I16x a) {
  return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}
OCTAVO_INLINE F16x load_f16(const uint16_t* p) {
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
OCTAVO_INLINE void store_f16(uint16_t* p, F16x a) {
  __m128i* q = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(q, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128(q + 1, _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
OCTAVO_INLINE F16x load_bf16(const uint16_t* p) {
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  const __m256i lo = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(q)), 16);
  const __m256i hi = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1)), 16);
  return {_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)};
}
// Eight bfloat16 in the low halves of eight int32.
OCTAVO_INLINE __m256i round_bf16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i top = _mm256_srli_epi32(bits, 16);
  const __m256i last = _mm256_and_si256(top, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, _mm256_or_si256(top, _mm256_set1_epi32(0x40)), nan);
}
OCTAVO_INLINE void store_bf16(uint16_t* p, F16x a) {
  const __m256i packed = _mm256_packus_epi32(round_bf16(a.lo), round_bf16(a.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
OCTAVO_INLINE I16x load_i8(const int8_t* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
OCTAVO_INLINE void store_i8(int8_t* p, I16x a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

// ---- masks ----
OCTAVO_INLINE M16x less(F16x a, F16x b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
OCTAVO_INLINE M16x less_equal(F16x a, F16x b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LE_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LE_OQ)};
}
OCTAVO_INLINE M16x equal(F16x a, F16x b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
}
OCTAVO_INLINE F16x select(M16x m, F16x yes, F16x no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}
OCTAVO_INLINE uint32_t mask_bits(M16x m) {
  return static_cast<uint32_t>(_mm256_movemask_ps(m.lo)) | static_cast<uint32_t>(_mm256_movemask_ps(m.hi)) << 8;
}

// ---- across lanes: halves 8, 4, 2, 1, the order of every ISA ----
OCTAVO_INLINE float reduce_add(F16x a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
OCTAVO_INLINE float reduce_max(F16x a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

OCTAVO_INLINE int32_t reduce_add_i32(I16x a) {
  const __m256i eight = _mm256_add_epi32(a.lo, a.hi);
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}

OCTAVO_INLINE void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
OCTAVO_INLINE void prefetch_l2(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

// ---- GEMM tiles: rows per full tile, panels beside each other in a tile of that many rows ----
// 16 registers, two to a panel: up to 12 float accumulators. int8 rows: 4 are the best for 8 bits (70 GMAC/s on a Zen 4 core);
// for 4 bits (119 with minimums, 122 without) 5 gain 2% on 48 rows and lose on 16, 6 spill. Two panels beside each other halved
// the speed of one row.
constexpr int kFloatMaxRows = 6;
constexpr int kQuantMaxRows = 4;
constexpr int float_panels(int rows) {
  return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
}
constexpr int quant_panels(int) {
  return 1;
}
constexpr int kChannelMaxRows = kQuantMaxRows;
constexpr int channel_panels(int) {
  return 1;
}

// ---- int8 products (see gemm_quant.h): out += sum over 4 * kSteps columns of code * a, exact ----
// vpmaddubsw adds two u8 x s8 products in an int16 that saturates. Codes are taken as nibbles, 16 * high + low: a pair is then
// within 2 * 15 * 128 = 3840, and the eight steps of a group of 32 within 30720, so they add up in int16 before widening.
// Two chains per row share each broadcast of four activations: the low and high nibbles of eight 8-bit outputs, or the lower
// and upper half of sixteen 4-bit outputs (one half after the other, with twice the broadcasts, was 8% to 13% slower).
template <int kBits, int kSteps, int R>
OCTAVO_INLINE void dot_chains(const uint8_t* codes, const int8_t* const (&a)[R], __m256i (&chain)[R][2]) {
  static_assert(kSteps <= 8, "int16 chains hold eight steps");
  const __m256i nibble = _mm256_set1_epi8(15);
  const int8_t* x[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    x[r] = a[r];
    asm volatile("" : "+r"(x[r]));  // or the compiler keeps the broadcasts for the next eight outputs: 48 registers, spilled
  }
#pragma GCC unroll 8
  for (int s = 0; s < kSteps; ++s) {
    const __m256i* p = reinterpret_cast<const __m256i*>(codes + 64 * (kBits == 8 ? s : s / 2));
    __m256i w[2] = {_mm256_loadu_si256(p), _mm256_loadu_si256(kBits == 8 ? p : p + 1)};
    if (kBits == 4 && s % 2 == 1) w[0] = _mm256_srli_epi16(w[0], 4);
    if (kBits == 8 || s % 2 == 1) w[1] = _mm256_srli_epi16(w[1], 4);
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) w[c] = _mm256_and_si256(w[c], nibble);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      int32_t four;
      __builtin_memcpy(&four, x[r] + 4 * s, 4);
      const __m256i columns = _mm256_set1_epi32(four);
#pragma GCC unroll 2
      for (int c = 0; c < 2; ++c) {
        const __m256i pairs = _mm256_maddubs_epi16(w[c], columns);
        chain[r][c] = s == 0 ? pairs : _mm256_add_epi16(chain[r][c], pairs);
        asm("" : "+x"(chain[r][c]));  // or the compiler reorders the sums and keeps all products: 61 -> 35 GMAC/s
      }
    }
  }
}

// Eight outputs a time of 8-bit codes: more chains than that do not fit the registers.
template <int kSteps, int R>
OCTAVO_INLINE void dot_eight(const uint8_t* codes, const int8_t* const (&a)[R], __m256i (&sum)[R]) {
  __m256i chain[R][2];
  dot_chains<8, kSteps, R>(codes, a, chain);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    sum[r] = _mm256_add_epi32(_mm256_madd_epi16(chain[r][0], _mm256_set1_epi16(1)),
                              _mm256_madd_epi16(chain[r][1], _mm256_set1_epi16(16)));
  }
}

template <int kBits, int kSteps, int R, int P>
OCTAVO_INLINE void dot_rows(const uint8_t* const (&codes)[P], const int8_t* const (&a)[R], I16x (&out)[R][P]) {
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    __m256i lo[R], hi[R];
    if constexpr (kBits == 8) {
      dot_eight<kSteps, R>(codes[p], a, lo);
      dot_eight<kSteps, R>(codes[p] + 32, a, hi);
    } else {
      __m256i chain[R][2];
      dot_chains<4, kSteps, R>(codes[p], a, chain);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        lo[r] = _mm256_madd_epi16(chain[r][0], _mm256_set1_epi16(1));
        hi[r] = _mm256_madd_epi16(chain[r][1], _mm256_set1_epi16(1));
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) out[r][p] = {_mm256_add_epi32(out[r][p].lo, lo[r]), _mm256_add_epi32(out[r][p].hi, hi[r])};
  }
}

constexpr int kVectorRegisters = 8;  // F16x that the register file holds
