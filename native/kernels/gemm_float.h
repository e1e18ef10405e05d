// Products of float32 activations with float32, float16 and bfloat16 weights; layouts in table.h.
// Each output is one chain acc = fma(x[k], w[k], acc) over k in rising order, whatever the tile.
#include "gemm_tiles.h"

constexpr int kFloatBlockBytes = 256 << 10;  // float32 activations of one row block

template <WeightKind kKind>
struct FloatFamily {
  static constexpr int kMaxRows = kFloatMaxRows;
  static constexpr int kBytes = kKind == WeightKind::f32 ? 4 : 2;

  template <int R>
  static constexpr int panels() {
    return float_panels(R);
  }

  template <int R, int P>
  static OCTAVO_INLINE void tile(const GemmArgs& args, int row, int panel, int valid, Fetch fetch) {
    const int cols = args.weight->cols;
    const uint8_t* w[P];
    for (int p = 0; p < P; ++p) {
      const int64_t source = panel + (p < valid ? p : valid - 1);
      w[p] = static_cast<const uint8_t*>(args.weight->data) + source * cols * kPanel * kBytes;
    }
    const float* x[R];
    F16x acc[R][P];
    for (int r = 0; r < R; ++r) {
      x[r] = args.x + (row + r) * args.ldx;
      for (int p = 0; p < P; ++p) acc[r][p] = zero();
    }
    const int64_t ahead = static_cast<int64_t>(cols) * (kPanel * kBytes) * P;  // the panels that come next
    for (int k = 0; k < cols; ++k) {
      F16x weights[P];
      if (fetch.due(k)) {
        for (int p = 0; p < P; ++p) prefetch_l2(w[p] + ahead + static_cast<int64_t>(k) * kPanel * kBytes);
      }
      for (int p = 0; p < P; ++p) weights[p] = load_weights(w[p] + static_cast<int64_t>(k) * kPanel * kBytes);
      for (int r = 0; r < R; ++r) {
        const F16x value = broadcast(x[r][k]);
        for (int p = 0; p < P; ++p) acc[r][p] = fma(value, weights[p], acc[r][p]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < valid; ++p) store_output(args, row + r, panel + p, acc[r][p]);
    }
  }

 private:
  static OCTAVO_INLINE F16x load_weights(const uint8_t* p) {
    if (kKind == WeightKind::f32) return load(reinterpret_cast<const float*>(p));
    const uint16_t* half = reinterpret_cast<const uint16_t*>(p);
    return kKind == WeightKind::f16 ? load_f16(half) : load_bf16(half);
  }
};

template <WeightKind kKind>
void gemm_float_kind(const GemmArgs& args) {
  const int rows = kFloatBlockBytes / 4 / args.weight->cols / kFloatMaxRows * kFloatMaxRows;
  run_gemm<FloatFamily<kKind>>(args, rows > 0 ? rows : kFloatMaxRows);
}

void gemm_float(const GemmArgs& args) {
  switch (args.weight->kind) {
    case WeightKind::f32: return gemm_float_kind<WeightKind::f32>(args);
    case WeightKind::f16: return gemm_float_kind<WeightKind::f16>(args);
    default: return gemm_float_kind<WeightKind::bf16>(args);
  }
}
