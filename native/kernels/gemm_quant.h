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
  static OCTAVO_INLINE void tile(const GemmArgs& args, int row, int panel, int valid, Fetch fetch) {
    Sources<R, P> from;
    from.locate(*args.weight, *args.quant, row, panel, valid);
    F16x acc[R][P];
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < P; ++p) acc[r][p] = zero();
    }
    const int groups = args.weight->cols / kGroup;
    for (int g = 0; g < groups; ++g) {
      if (fetch.due(g)) from.fetch_group(g, static_cast<int64_t>(args.weight->cols) * (kPanel * kBits / 8) * P);
      from.add_group(g, acc);
    }
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < valid; ++p) store_output(args, row + r, panel + p, acc[r][p]);
    }
  }

 private:
  // Where the operands of one tile start, and one group's step over them.
  template <int R, int P>
  struct Sources {
    const uint8_t* codes[P];
    const uint8_t* scales[P];
    const uint8_t* mins[P];
    const int8_t* a[R];
    const float* a_scales[R];
    const int32_t* a_sums[R];
    int32_t zero_point;
    bool half_scales;

    OCTAVO_INLINE void locate(const PackedMatrix& w, const QuantRows& x, int row, int panel, int valid) {
      const int64_t panel_bytes = static_cast<int64_t>(w.cols) * kPanel * kBits / 8;
      const int64_t table_bytes = static_cast<int64_t>(w.cols / kGroup) * kPanel * (w.scale_f16 ? 2 : 4);
      for (int p = 0; p < P; ++p) {
        const int source = panel + (p < valid ? p : valid - 1);
        codes[p] = static_cast<const uint8_t*>(w.data) + source * panel_bytes;
        scales[p] = static_cast<const uint8_t*>(w.scales) + source * table_bytes;
        mins[p] = kMins ? static_cast<const uint8_t*>(w.mins) + source * table_bytes : nullptr;
      }
      for (int64_t r = 0; r < R; ++r) {
        a[r] = x.codes + (row + r) * x.cols;
        a_scales[r] = x.scales + (row + r) * (x.cols / kActGroup);
        a_sums[r] = x.sums + (row + r) * (x.cols / kSumGroup);
      }
      zero_point = w.zero_point;
      half_scales = w.scale_f16 != 0;
    }

    // Asks for the codes that lie `ahead` bytes further on, in the panels that come next. Reading past the end is harmless.
    OCTAVO_INLINE void fetch_group(int g, int64_t ahead) const {
      constexpr int kGroupBytes = kGroup * kPanel * kBits / 8;
      for (int p = 0; p < P; ++p) {
        for (int at = 0; at < kGroupBytes; at += 64) prefetch_l2(codes[p] + static_cast<int64_t>(g) * kGroupBytes + ahead + at);
      }
    }

    OCTAVO_INLINE F16x load_scale(const uint8_t* table, int g) const {
      return half_scales ? load_f16(reinterpret_cast<const uint16_t*>(table) + g * kPanel)
                         : load(reinterpret_cast<const float*>(table) + g * kPanel);
    }

    OCTAVO_INLINE void add_group(int g, F16x (&acc)[R][P]) const {
      const uint8_t* group_codes[P];
      const int8_t* group_a[R];
      int32_t sum[R], start[R];
      for (int p = 0; p < P; ++p) group_codes[p] = codes[p] + static_cast<int64_t>(g) * (kGroup * kPanel * kBits / 8);
      for (int r = 0; r < R; ++r) {
        group_a[r] = a[r] + g * kGroup;
        sum[r] = kGroup == 32 ? a_sums[r][2 * g] + a_sums[r][2 * g + 1] : a_sums[r][g];
        start[r] = -zero_point * sum[r];
      }
      I16x dot[R][P];
      dot_rows<kBits, kGroup / 4, R, P>(group_codes, group_a, start, dot);
      for (int p = 0; p < P; ++p) {
        const F16x scale_w = load_scale(scales[p], g);
        F16x min_w;
        if constexpr (kMins) min_w = load_scale(mins[p], g);
        for (int r = 0; r < R; ++r) {
          const F16x scale_a = broadcast(a_scales[r][g * kGroup / kActGroup]);
          acc[r][p] = fma_exact(to_f32(dot[r][p]), mul(scale_w, scale_a), acc[r][p]);
          if constexpr (kMins) acc[r][p] = fma_exact(min_w, mul(scale_a, to_f32(broadcast_i32(sum[r]))), acc[r][p]);
        }
      }
    }
  };
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
