// Sixteen lanes in one zmm register: AVX-512 F, BW, DQ, VL and VNNI. The API is described in vec.h.
// Included inside the namespace of the ISA unit; <immintrin.h> and <cstdint> must come before.

struct F16x {
  __m512 v;
};
struct I16x {
  __m512i v;
};
struct M16x {
  __mmask16 v;
};

OCTAVO_INLINE __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}

// ---- float32: memory ----
OCTAVO_INLINE F16x load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
OCTAVO_INLINE F16x load_n(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}
OCTAVO_INLINE void store(float* p, F16x a) {
  _mm512_storeu_ps(p, a.v);
}
OCTAVO_INLINE void store_n(float* p, F16x a, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), a.v);
}
OCTAVO_INLINE F16x zero() {
  return {_mm512_setzero_ps()};
}
OCTAVO_INLINE F16x broadcast(float x) {
  return {_mm512_set1_ps(x)};
}

// ---- float32: arithmetic ----
OCTAVO_INLINE F16x add(F16x a, F16x b) {
  return {_mm512_add_ps(a.v, b.v)};
}
OCTAVO_INLINE F16x sub(F16x a, F16x b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
OCTAVO_INLINE F16x mul(F16x a, F16x b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
OCTAVO_INLINE F16x div(F16x a, F16x b) {
  return {_mm512_div_ps(a.v, b.v)};
}
OCTAVO_INLINE F16x fma(F16x a, F16x b, F16x c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
OCTAVO_INLINE F16x fma_exact(F16x a, F16x b, F16x c) {
  return fma(a, b, c);
}
OCTAVO_INLINE F16x min(F16x a, F16x b) {
  return {_mm512_min_ps(a.v, b.v)};
}
OCTAVO_INLINE F16x max(F16x a, F16x b) {
  return {_mm512_max_ps(a.v, b.v)};
}
OCTAVO_INLINE F16x sqrt(F16x a) {
  return {_mm512_sqrt_ps(a.v)};
}
OCTAVO_INLINE F16x abs(F16x a) {
  return {_mm512_abs_ps(a.v)};
}

// ---- int32 ----
OCTAVO_INLINE I16x load_i32(const int32_t* p) {
  return {_mm512_loadu_si512(p)};
}
OCTAVO_INLINE void store_i32(int32_t* p, I16x a) {
  _mm512_storeu_si512(p, a.v);
}
OCTAVO_INLINE I16x broadcast_i32(int32_t x) {
  return {_mm512_set1_epi32(x)};
}
OCTAVO_INLINE I16x add(I16x a, I16x b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
OCTAVO_INLINE I16x sub(I16x a, I16x b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
OCTAVO_INLINE I16x mul(I16x a, I16x b) {
  return {_mm512_mullo_epi32(a.v, b.v)};
}
template <int kBits>
OCTAVO_INLINE I16x shift_left(I16x a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}

// ---- conversions ----
OCTAVO_INLINE F16x to_f32(I16x a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
OCTAVO_INLINE I16x round_i32(F16x a) {
  return {_mm512_cvtps_epi32(a.v)};
}
OCTAVO_INLINE I16x as_i32(F16x a) {
  return {_mm512_castps_si512(a.v)};
}
OCTAVO_INLINE F16x as_f32(I16x a) {
  return {_mm512_castsi512_ps(a.v)};
}
OCTAVO_INLINE F16x load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
OCTAVO_INLINE void store_f16(uint16_t* p, F16x a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
OCTAVO_INLINE F16x load_bf16(const uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
OCTAVO_INLINE void store_bf16(uint16_t* p, F16x a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  const __m512i word = _mm512_mask_mov_epi32(rounded, nan, quiet);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(word));
}
OCTAVO_INLINE I16x load_i8(const int8_t* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
OCTAVO_INLINE void store_i8(int8_t* p, I16x a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(a.v));
}

// ---- masks ----
OCTAVO_INLINE M16x less(F16x a, F16x b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
OCTAVO_INLINE M16x less_equal(F16x a, F16x b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)};
}
OCTAVO_INLINE M16x equal(F16x a, F16x b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)};
}
OCTAVO_INLINE F16x select(M16x m, F16x yes, F16x no) {
  return {_mm512_mask_mov_ps(no.v, m.v, yes.v)};
}
OCTAVO_INLINE uint32_t mask_bits(M16x m) {
  return m.v;
}

// ---- across lanes: halves 8, 4, 2, 1, the order of every ISA ----
OCTAVO_INLINE float reduce_add(F16x a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
OCTAVO_INLINE float reduce_max(F16x a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

OCTAVO_INLINE int32_t reduce_add_i32(I16x a) {
  return _mm512_reduce_add_epi32(a.v);
}

OCTAVO_INLINE void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
OCTAVO_INLINE void prefetch_l2(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

// ---- GEMM tiles: rows per full tile, panels beside each other in a tile of that many rows ----
// 32 registers: up to 24 float accumulators; int8 keeps 12 int32 and 12 float32 accumulators. Thin int8 tiles read one panel
// after the other, a single stream from memory; 12 x 1 instead of 6 x 2 is slower on wide batches.
constexpr int kFloatMaxRows = 12;
constexpr int kQuantMaxRows = 6;
constexpr int kStreamRows = 3;
constexpr int float_panels(int rows) {
  return rows <= 6 ? 4 : 2;
}
constexpr int quant_panels(int rows) {
  return rows <= 5 ? 1 : 2;
}
// One scale per output needs no float accumulators: 24 int32 ones (6 x 4 is slower on 8 rows).
constexpr int kChannelMaxRows = 12;
constexpr int channel_panels(int rows) {
  return rows == 1 ? 1 : 2;
}

// ---- int8 products (see gemm_quant.h): out += sum over 4 * kSteps columns of code * a, exact ----
// vpdpbusd adds four u8 x s8 products to each int32. P panels share each broadcast of four activations.
template <int kBits, int kSteps, int R, int P>
OCTAVO_INLINE void dot_rows(const uint8_t* const (&codes)[P], const int8_t* const (&a)[R], I16x (&out)[R][P]) {
#pragma GCC unroll 8
  for (int s = 0; s < kSteps; ++s) {
    __m512i w[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      if (kBits == 8) {
        w[p] = _mm512_loadu_si512(codes[p] + 64 * s);
      } else {
        const __m512i both = _mm512_loadu_si512(codes[p] + 64 * (s / 2));
        w[p] = _mm512_and_si512(s % 2 == 0 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      int32_t four;
      __builtin_memcpy(&four, a[r] + 4 * s, 4);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) out[r][p].v = _mm512_dpbusd_epi32(out[r][p].v, w[p], _mm512_set1_epi32(four));
    }
  }
}

constexpr int kVectorRegisters = 32;  // F16x that the register file holds
