// Products of int8 codes with AVX2 alone, and the tiles that they fit; included after avx2.h, into the same unit.

// ---- GEMM tiles of int8: rows per full tile, panels beside each other in a tile of that many rows ----
// 4 rows are the best for 8 bits; for 4 bits 5 gain on wide batches and lose on thin ones, 6 spill. Two panels beside each other
// halve the speed of one row.
constexpr int kQuantMaxRows = 4;
constexpr int kStreamRows = 1;  // two are as fast without, three lose by it
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
// and upper half of sixteen 4-bit outputs (one half after the other takes twice the broadcasts).
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
        asm("" : "+x"(chain[r][c]));  // or the compiler reorders the sums and keeps all products
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
