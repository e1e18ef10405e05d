// Products of 8-bit weights with one scale per output and int8 activations with one scale per row (W8A8); layouts in table.h.
//
//   n   = sum over all columns of (code - 128) * a          exact, int32: |n| and every partial sum <= 128 * 127 * cols
//   out = float(n) * (scale_w * scale_a)                    three roundings
// The int32 part is exact in any order and the float steps are the same everywhere, so all ISAs agree to the bit.

struct ChannelFamily {
  static constexpr int kMaxRows = kChannelMaxRows;
  static constexpr int kStep = 32;  // columns

  template <int R>
  static constexpr int panels() {
    return channel_panels(R);
  }

  template <int R, int P>
  static OCTAVO_INLINE void tile(const GemmArgs& args, int row, int panel, int valid, Fetch fetch) {
    const PackedMatrix& w = *args.weight;
    const QuantRows& x = *args.quant;
    const int64_t panel_bytes = static_cast<int64_t>(w.cols) * kPanel;
    const uint8_t* codes[P];
    const int8_t* a[R];
    I16x dot[R][P];
    for (int p = 0; p < P; ++p) {
      codes[p] = static_cast<const uint8_t*>(w.data) + (panel + (p < valid ? p : valid - 1)) * panel_bytes;
    }
    for (int r = 0; r < R; ++r) {
      a[r] = x.codes + static_cast<int64_t>(row + r) * x.cols;
      for (int p = 0; p < P; ++p) dot[r][p] = broadcast_i32(-w.zero_point * x.sums[row + r]);
    }
    for (int s = 0; s < w.cols / kStep; ++s) {
      if (fetch.due(s)) {
        for (int p = 0; p < P; ++p) {
          for (int at = 0; at < kStep * kPanel; at += 64) prefetch_l2(codes[p] + panel_bytes * P + at);
        }
      }
      dot_rows<8, kStep / 4, R, P>(codes, a, dot);
      for (int p = 0; p < P; ++p) codes[p] += kStep * kPanel;
      for (int r = 0; r < R; ++r) a[r] += kStep;
    }
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      if (p >= valid) break;
      const F16x scale_w = load(static_cast<const float*>(w.scales) + static_cast<int64_t>(panel + p) * kPanel);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const F16x scale = mul(scale_w, broadcast(x.scales[row + r]));
        store_output(args, row + r, panel + p, mul(to_f32(dot[r][p]), scale));
      }
    }
  }
};

void gemm_channel(const GemmArgs& args) {
  run_gemm<ChannelFamily>(args, quant_block_rows(args.weight->cols, kChannelMaxRows));
}
