// Products of int8 activations with 8-bit and 4-bit weights in groups; layouts in table.h.
//
// For each step of 32 columns (16 where a weight's groups are that short), in rising order; weights in groups of 64 and 128
// take their scale and minimum for two and four steps:
//   n    = sum over the step of (code - zero_point) * a                      exact, int32
//   acc  = fma(float(n), scale_w * scale_a, acc)                              one rounding
//   acc  = fma(min, scale_a * float(sum of a), acc)                           formats with minimums
// The int32 part is exact in any order and the float steps are the same everywhere, so all ISAs agree to the bit.
#include "gemm_tiles.h"

constexpr int kQuantBlockBytes = 256 << 10;  // int8 activations of one row block: half of the smallest L2 cache in use

// Up to kStreamRows rows of 8-bit weights wait for memory alone. The processor's own prefetcher follows one stream better than
// requests line by line do (Fetch), but ends at each page: it gets the first lines of a page early. 4-bit weights lose by it, and
// so do tiles that read several panels at once: bfloat16, two and three rows of w8a8.
constexpr int kStreamAhead = 8192;  // bytes

// Rows of a block, a multiple of a full tile's.
OCTAVO_INLINE int quant_block_rows(int cols, int tile_rows) {
  const int rows = kQuantBlockBytes / cols / tile_rows * tile_rows;
  return rows > 0 ? rows : tile_rows;
}

template <int kBits, int kStep, bool kMins, bool kUnits>
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
    const int steps = args.weight->cols / kStep;
    for (int s = 0; s < steps; ++s) {
      if (kUnits && s % (kScaleSpan / kStep) == 0) from.load_units(s);
      if constexpr (kBits == 8 && R <= kStreamRows) {
        from.fetch_page(s);
      } else if (fetch.due(s)) {
        from.fetch_step(s, static_cast<int64_t>(args.weight->cols) * (kPanel * kBits / 8) * P);
      }
      from.add_step(s, acc);
    }
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < valid; ++p) store_output(args, row + r, panel + p, acc[r][p]);
    }
  }

 private:
  // Where the operands of one tile start, and one step over them.
  template <int R, int P>
  struct Sources {
    const uint8_t* codes[P];
    const uint8_t* scales[P];
    const uint8_t* mins[P];
    const int8_t* a[R];
    const float* a_scales[R];
    const int32_t* a_sums[R];
    const float* a_products[R];
    int32_t zero_point;
    int32_t shift;  // steps per group of the weight: 2^shift
    bool half_scales;  // without units
    F16x scale_units[P], min_units[P];  // of the span that is worked on

    OCTAVO_INLINE void locate(const PackedMatrix& w, const QuantRows& x, int row, int panel, int valid) {
      const int64_t panel_bytes = static_cast<int64_t>(w.cols) * kPanel * kBits / 8;
      const int64_t table_bytes = scale_bytes(w);
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
        a_products[r] = x.products + (row + r) * (x.cols / kActGroup);
      }
      zero_point = w.zero_point;
      shift = w.group == 128 ? 2 : w.group == 64 ? 1 : 0;
      half_scales = w.scale_kind == ScaleKind::f16;
    }

    // Asks for the codes that lie `ahead` bytes further on, in the panels that come next. Reading past the end is harmless.
    OCTAVO_INLINE void fetch_step(int s, int64_t ahead) const {
      constexpr int kStepBytes = kStep * kPanel * kBits / 8;
      for (int p = 0; p < P; ++p) {
        for (int at = 0; at < kStepBytes; at += 64) prefetch_l2(codes[p] + static_cast<int64_t>(s) * kStepBytes + ahead + at);
      }
    }

    // Asks for the first lines of a page that the codes will reach soon, once per page.
    OCTAVO_INLINE void fetch_page(int s) const {
      constexpr int kStepBytes = kStep * kPanel * kBits / 8, kPageBytes = 4096, kLines = 3;
      for (int p = 0; p < P; ++p) {
        const uintptr_t ahead = reinterpret_cast<uintptr_t>(codes[p] + static_cast<int64_t>(s) * kStepBytes) + kStreamAhead;
        if (ahead % kPageBytes >= kStepBytes) continue;
        const char* page = reinterpret_cast<const char*>(ahead - ahead % kPageBytes);
        for (int line = 0; line < kLines; ++line) prefetch_l2(page + 64 * line);
      }
    }

    static constexpr int kSpanGroups = kScaleSpan / kStep;

    // Where the units of group g begin; its steps follow them.
    static OCTAVO_INLINE const uint8_t* units_of(const uint8_t* table, int g) {
      return table + static_cast<int64_t>(g / kSpanGroups) * (kPanel * (2 + kSpanGroups));
    }
    OCTAVO_INLINE void load_units(int g) {
      for (int p = 0; p < P; ++p) {
        scale_units[p] = load_f16(reinterpret_cast<const uint16_t*>(units_of(scales[p], g)));
        if constexpr (kMins) min_units[p] = load_f16(reinterpret_cast<const uint16_t*>(units_of(mins[p], g)));
      }
    }

    // The scales or minimums of group g.
    OCTAVO_INLINE F16x load_scale(const uint8_t* table, F16x unit, int g) const {
      if constexpr (kUnits) {
        const uint8_t* steps = units_of(table, g) + 2 * kPanel + g % kSpanGroups * kPanel;
        return mul(unit, to_f32(load_i8(reinterpret_cast<const int8_t*>(steps))));
      }
      return half_scales ? load_f16(reinterpret_cast<const uint16_t*>(table) + g * kPanel)
                         : load(reinterpret_cast<const float*>(table) + g * kPanel);
    }

    // Of the activations of row r in step s: the sum of codes, and scale times it.
    OCTAVO_INLINE int32_t sum_of(int r, int s) const {
      return kStep == 32 ? a_sums[r][2 * s] + a_sums[r][2 * s + 1] : a_sums[r][s];
    }
    OCTAVO_INLINE float product_of(int r, int s) const {
      return kStep == 32 ? a_products[r][s] : a_scales[r][s * kStep / kActGroup] * static_cast<float>(sum_of(r, s));
    }

    OCTAVO_INLINE void add_step(int s, F16x (&acc)[R][P]) const {
      const uint8_t* step_codes[P];
      const int8_t* step_a[R];
      I16x dot[R][P];
      for (int p = 0; p < P; ++p) step_codes[p] = codes[p] + static_cast<int64_t>(s) * (kStep * kPanel * kBits / 8);
      for (int r = 0; r < R; ++r) {
        step_a[r] = a[r] + s * kStep;
        // Formats with minimums have no zero point.
        const I16x start = broadcast_i32(kMins ? 0 : -zero_point * sum_of(r, s));
        for (int p = 0; p < P; ++p) dot[r][p] = start;
      }
      dot_rows<kBits, kStep / 4, R, P>(step_codes, step_a, dot);
      for (int p = 0; p < P; ++p) {
        const F16x scale_w = load_scale(scales[p], scale_units[p], s >> shift);
        F16x min_w;
        if constexpr (kMins) min_w = load_scale(mins[p], min_units[p], s >> shift);
        for (int r = 0; r < R; ++r) {
          const F16x scale_a = broadcast(a_scales[r][s * kStep / kActGroup]);
          acc[r][p] = fma_exact(to_f32(dot[r][p]), mul(scale_w, scale_a), acc[r][p]);
          if constexpr (kMins) acc[r][p] = fma_exact(min_w, broadcast(product_of(r, s)), acc[r][p]);
        }
      }
    }
  };
};

template <int kBits, int kStep, bool kMins, bool kUnits = false>
void gemm_quant_kind(const GemmArgs& args) {
  run_gemm<QuantFamily<kBits, kStep, kMins, kUnits>>(args, quant_block_rows(args.weight->cols, kQuantMaxRows));
}

// The floats that a panel's units and steps stand for, [groups][16].
OCTAVO_INLINE void expand_scales(const PackedMatrix& w, const void* tables, int panel, float* out) {
  const int spans = w.cols / kScaleSpan, groups = kScaleSpan / w.group;
  const uint8_t* units = static_cast<const uint8_t*>(tables) + panel * scale_bytes(w);
  for (int span = 0; span < spans; ++span, units += kPanel * (2 + groups)) {
    const F16x unit = load_f16(reinterpret_cast<const uint16_t*>(units));
    const int8_t* steps = reinterpret_cast<const int8_t*>(units + 2 * kPanel);
    for (int g = 0; g < groups; ++g, out += kPanel) store(out, mul(unit, to_f32(load_i8(steps + g * kPanel))));
  }
}

constexpr int kExpandedFloats = 32 << 10;  // on the stack

// More rows than one tile takes: the scales of a few panels are expanded once for all tiles. Wider matrices than the memory
// for it holds, and fewer rows, expand each scale where they need it.
template <int kBits, int kStep, bool kMins>
void gemm_quant_units(const GemmArgs& args) {
  const PackedMatrix& w = *args.weight;
  const int floats = groups_of(w) * kPanel, tables = kMins ? 2 : 1;
  constexpr int kWide = quant_panels(kQuantMaxRows);  // few, so that they stay in the first cache
  const int fitting = kExpandedFloats / (floats * tables), most = fitting < kWide ? fitting : kWide;
  if (most == 0 || args.row_end - args.row_begin <= kQuantMaxRows) return gemm_quant_kind<kBits, kStep, kMins, true>(args);
  alignas(64) float expanded[kExpandedFloats];
  for (int first = args.panel_begin; first < args.panel_end; first += most) {
    const int panels = args.panel_end - first < most ? args.panel_end - first : most;
    PackedMatrix part = w;  // panels first .. first + panels
    part.rows = w.rows - first * kPanel;
    part.data = static_cast<const uint8_t*>(w.data) + first * panel_bytes(w);
    part.bias = w.bias != nullptr ? w.bias + first * kPanel : nullptr;
    part.scale_kind = ScaleKind::f32;
    part.scales = expanded;
    part.mins = kMins ? expanded + panels * floats : nullptr;
    for (int p = 0; p < panels; ++p) {
      expand_scales(w, w.scales, first + p, expanded + p * floats);
      if constexpr (kMins) expand_scales(w, w.mins, first + p, expanded + (panels + p) * floats);
    }
    GemmArgs some = args;
    some.weight = &part;
    some.out = args.out + first * kPanel;
    some.residual = args.residual != nullptr ? args.residual + first * kPanel : nullptr;
    some.panel_begin = 0;
    some.panel_end = panels;
    gemm_quant_kind<kBits, kStep, kMins>(some);
  }
}

template <int kBits>
OCTAVO_INLINE void gemm_quant_bits(const GemmArgs& args) {
  const bool mins = args.weight->mins != nullptr;
  if (args.weight->scale_kind == ScaleKind::steps) {   // q4_k and q5_k; q6_k
    if (mins) return gemm_quant_units<kBits, 32, true>(args);
    if constexpr (kBits == 8) return gemm_quant_units<8, 16, false>(args);
  }
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
