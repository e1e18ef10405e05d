// Rotary position embedding, half-split pairs (Su et al., 2021). Included inside the namespace of an ISA unit, after simd.

// Rotates pairs (low[i], high[i]) by the angle whose cosine and sine are given; n <= 16. Plain products, so ISAs agree.
inline void rope_pairs(const float* x, float* out, const float* cos, const float* sin, int32_t half, int32_t n) {
  const F16x low = load_n(x, n), high = load_n(x + half, n);
  const F16x c = load_n(cos, n), s = load_n(sin, n);
  store_n(out, sub(mul(low, c), mul(high, s)), n);
  store_n(out + half, add(mul(high, c), mul(low, s)), n);
}

inline void rope_pairs16(const float* x, float* out, const float* cos, const float* sin, int32_t half) {
  const F16x low = load(x), high = load(x + half);
  const F16x c = load(cos), s = load(sin);
  store(out, sub(mul(low, c), mul(high, s)));
  store(out + half, add(mul(high, c), mul(low, s)));
}

void rope(const RopeArgs& args) {
  const int32_t half = args.rotary_dim / 2;
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    const float* const cos = args.cos + static_cast<int64_t>(args.positions[row]) * half;
    const float* const sin = args.sin + static_cast<int64_t>(args.positions[row]) * half;
    for (int64_t head = 0; head < args.heads; ++head) {
      const float* const x = args.x + row * args.ldx + head * args.head_dim;
      float* const out = args.out + row * args.ldout + head * args.head_dim;
      int32_t i = 0;
      for (; i + 16 <= half; i += 16) {
        rope_pairs16(x + i, out + i, cos + i, sin + i, half);
      }
      if (i < half) {
        rope_pairs(x + i, out + i, cos + i, sin + i, half, half - i);
      }
      if (x != out) {
        for (i = args.rotary_dim; i < args.head_dim; ++i) {
          out[i] = x[i];
        }
      }
    }
  }
}
