// Products of int8 activations with 8-bit and 4-bit weights; layouts in table.h.
//
// For each group of columns, in rising order:
//   n    = sum over the group of (code - zero_point) * a                      exact, int32
//   acc  = fma(float(n), scale_w * scale_a, acc)                              one rounding
//   acc  = fma(min, scale_a * float(sum of a), acc)                           formats with minimums
// The int32 part is exact in any order and the float steps are the same everywhere, so all ISAs agree to the bit.
#include "gemm_tiles.h"

constexpr int kQuantBlockBytes = 256 << 10;  // int8 activations of one row block: half of the smallest L2 cache in use

template <int kBits, int kGroup, bool kMins>
struct QuantFamily {
  static constexpr int kMaxRows = kQuantMaxRows;

  template <int R>
  static constexpr int panels() {
    return quant_panels(R);
  }

  template <int R, int P>
  static OCTAVO_INLINE void tile(const GemmArgs& args, int row, int panel, int valid) {
    const PackedMatrix& w = *args.weight;
    const QuantRows& x = *args.quant;
    const int groups = w.cols / kGroup;
    const int64_t panel_bytes = static_cast<int64_t>(w.cols) * kPanel * kBits / 8;
    const int64_t table_bytes = static_cast<int64_t>(groups) * kPanel * (w.scale_f16 ? 2 : 4);
    const uint8_t* codes[P];
    const uint8_t* scales[P];
    const uint8_t* mins[P];
    for (int p = 0; p < P; ++p) {
      const int source = panel + (p < valid ? p : valid - 1);
      codes[p] = static_cast<const uint8_t*>(w.data) + source * panel_bytes;
      scales[p] = static_cast<const uint8_t*>(w.scales) + source * table_bytes;
      if (kMins) mins[p] = static_cast<const uint8_t*>(w.mins) + source * table_bytes;
    }
    F16x acc[R][P];
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < P; ++p) acc[r][p] = zero();
    }
    for (int g = 0; g < groups; ++g) {
      group_step<R, P>(w, x, row, g, codes, scales, mins, acc);
      for (int p = 0; p < P; ++p) codes[p] += kGroup * kPanel * kBits / 8;
    }
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < valid; ++p) store_output(args, row + r, panel + p, acc[r][p]);
    }
  }

 private:
  static OCTAVO_INLINE F16x load_scale(const PackedMatrix& w, const uint8_t* table, int g) {
    return w.scale_f16 ? load_f16(reinterpret_cast<const uint16_t*>(table) + g * kPanel)
                       : load(reinterpret_cast<const float*>(table) + g * kPanel);
  }

  template <int R, int P>
  static OCTAVO_INLINE void group_step(const PackedMatrix& w, const QuantRows& x, int row, int g,
                                       const uint8_t* const (&codes)[P], const uint8_t* const (&scales)[P],
                                       const uint8_t* const (&mins)[P], F16x (&acc)[R][P]) {
    const int8_t* a[R];
    int32_t sum[R], start[R];
    for (int r = 0; r < R; ++r) {
      const int64_t at = row + r;
      a[r] = x.codes + at * x.cols + g * kGroup;
      const int32_t* sums = x.sums + at * (x.cols / kSumGroup) + g * (kGroup / kSumGroup);
      sum[r] = kGroup == 32 ? sums[0] + sums[1] : sums[0];
      start[r] = -w.zero_point * sum[r];
    }
    I16x dot[R][P];
    dot_rows<kBits, kGroup / 4, R, P>(codes, a, start, dot);
    F16x scale_a[R];
    for (int r = 0; r < R; ++r) scale_a[r] = broadcast(x.scales[(row + r) * static_cast<int64_t>(x.cols / kActGroup) + g * kGroup / kActGroup]);
    for (int p = 0; p < P; ++p) {
      const F16x scale_w = load_scale(w, scales[p], g);
      for (int r = 0; r < R; ++r) acc[r][p] = fma_exact(to_f32(dot[r][p]), mul(scale_w, scale_a[r]), acc[r][p]);
      if (kMins) {
        const F16x min_w = load_scale(w, mins[p], g);
        for (int r = 0; r < R; ++r) {
          acc[r][p] = fma_exact(min_w, mul(scale_a[r], to_f32(broadcast_i32(sum[r]))), acc[r][p]);
        }
      }
    }
  }
};

template <int kBits, int kGroup, bool kMins>
void gemm_quant_kind(const GemmArgs& args) {
  const int rows = kQuantBlockBytes / args.weight->cols / kQuantMaxRows * kQuantMaxRows;
  run_gemm<QuantFamily<kBits, kGroup, kMins>>(args, rows > 0 ? rows : kQuantMaxRows);
}

template <int kBits>
OCTAVO_INLINE void gemm_quant_bits(const GemmArgs& args) {
  const bool mins = args.weight->mins != nullptr;
  if (args.weight->group == 16) {
    mins ? gemm_quant_kind<kBits, 16, true>(args) : gemm_quant_kind<kBits, 16, false>(args);
  } else {
    mins ? gemm_quant_kind<kBits, 32, true>(args) : gemm_quant_kind<kBits, 32, false>(args);
  }
}

void gemm_quant(const GemmArgs& args) {
  if (args.weight->kind == WeightKind::q8) {
    gemm_quant_bits<8>(args);
  } else {
    gemm_quant_bits<4>(args);
  }
}
