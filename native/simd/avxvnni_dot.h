// Products of int8 codes with AVX-VNNI, and the tiles that they fit; included after avx2.h, into the same unit.

// ---- GEMM tiles of int8: rows per full tile, panels beside each other in a tile of that many rows ----
// Measured on a CPU that has the same instructions in EVEX encoding. Weights in groups: 4 rows are 8 int32 accumulators, and as
// many of float32 that lie in memory during the products. 5 and 6 rows gain on some formats and lose on more; so do 2 x 2, and
// 3 x 2 spills.
constexpr int kQuantMaxRows = 4;
constexpr int kStreamRows = 1;  // as avx2: more were not measured
constexpr int quant_panels(int) {
  return 1;
}
// One scale per output needs no float accumulators: 6 rows are 12 chains, which hide the latency of two multipliers. Two
// rows are what 8 leave over: they take two panels beside each other.
constexpr int kChannelMaxRows = 6;
constexpr int channel_panels(int rows) {
  return rows == 2 ? 2 : 1;
}

// ---- int8 products (see gemm_quant.h): out += sum over 4 * kSteps columns of code * a, exact ----
// vpdpbusd adds four u8 x s8 products to each int32. The two halves of P panels share each broadcast of four activations.
template <int kBits, int kSteps, int R, int P>
OCTAVO_INLINE void dot_rows(const uint8_t* const (&codes)[P], const int8_t* const (&a)[R], I16x (&out)[R][P]) {
#pragma GCC unroll 8
  for (int s = 0; s < kSteps; ++s) {
    I16x w[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      w[p] = load_i32(reinterpret_cast<const int32_t*>(codes[p] + 64 * (kBits == 8 ? s : s / 2)));
      if (kBits == 4) {
        if (s % 2 == 1) w[p] = {_mm256_srli_epi16(w[p].lo, 4), _mm256_srli_epi16(w[p].hi, 4)};
        w[p] = {_mm256_and_si256(w[p].lo, _mm256_set1_epi8(15)), _mm256_and_si256(w[p].hi, _mm256_set1_epi8(15))};
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      int32_t four;
      __builtin_memcpy(&four, a[r] + 4 * s, 4);
      const __m256i columns = _mm256_set1_epi32(four);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        out[r][p].lo = _mm256_dpbusd_avx_epi32(out[r][p].lo, w[p].lo, columns);
        out[r][p].hi = _mm256_dpbusd_avx_epi32(out[r][p].hi, w[p].hi, columns);
      }
    }
  }
}
