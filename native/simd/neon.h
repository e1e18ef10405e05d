// Sixteen lanes in four q registers: AArch64 NEON without extensions. The API is described in vec.h.
// Included inside the namespace of the ISA unit; <arm_neon.h> and <cstdint> must come before.

struct F16x {
  float32x4_t a, b, c, d;
};
struct I16x {
  int32x4_t a, b, c, d;
};
struct M16x {
  uint32x4_t a, b, c, d;
};

// ---- float32: memory ----
OCTAVO_INLINE F16x load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
OCTAVO_INLINE void store(float* p, F16x x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
  vst1q_f32(p + 8, x.c);
  vst1q_f32(p + 12, x.d);
}
OCTAVO_INLINE F16x load_n(const float* p, int n) {
  float lanes[16] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
OCTAVO_INLINE void store_n(float* p, F16x x, int n) {
  float lanes[16];
  store(lanes, x);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
OCTAVO_INLINE F16x broadcast(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {v, v, v, v};
}
OCTAVO_INLINE F16x zero() {
  return broadcast(0.0f);
}

// ---- float32: arithmetic ----
OCTAVO_INLINE F16x add(F16x x, F16x y) {
  return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b), vaddq_f32(x.c, y.c), vaddq_f32(x.d, y.d)};
}
OCTAVO_INLINE F16x sub(F16x x, F16x y) {
  return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b), vsubq_f32(x.c, y.c), vsubq_f32(x.d, y.d)};
}
OCTAVO_INLINE F16x mul(F16x x, F16x y) {
  return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c), vmulq_f32(x.d, y.d)};
}
OCTAVO_INLINE F16x div(F16x x, F16x y) {
  return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b), vdivq_f32(x.c, y.c), vdivq_f32(x.d, y.d)};
}
OCTAVO_INLINE F16x fma(F16x x, F16x y, F16x z) {
  return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c), vfmaq_f32(z.d, x.d, y.d)};
}
OCTAVO_INLINE F16x fma_exact(F16x x, F16x y, F16x z) {
  return fma(x, y, z);
}
OCTAVO_INLINE F16x min(F16x x, F16x y) {
  return {vbslq_f32(vcltq_f32(x.a, y.a), x.a, y.a), vbslq_f32(vcltq_f32(x.b, y.b), x.b, y.b),
          vbslq_f32(vcltq_f32(x.c, y.c), x.c, y.c), vbslq_f32(vcltq_f32(x.d, y.d), x.d, y.d)};
}
OCTAVO_INLINE F16x max(F16x x, F16x y) {
  return {vbslq_f32(vcgtq_f32(x.a, y.a), x.a, y.a), vbslq_f32(vcgtq_f32(x.b, y.b), x.b, y.b),
          vbslq_f32(vcgtq_f32(x.c, y.c), x.c, y.c), vbslq_f32(vcgtq_f32(x.d, y.d), x.d, y.d)};
}
OCTAVO_INLINE F16x sqrt(F16x x) {
  return {vsqrtq_f32(x.a), vsqrtq_f32(x.b), vsqrtq_f32(x.c), vsqrtq_f32(x.d)};
}
OCTAVO_INLINE F16x abs(F16x x) {
  return {vabsq_f32(x.a), vabsq_f32(x.b), vabsq_f32(x.c), vabsq_f32(x.d)};
}

// ---- int32 ----
OCTAVO_INLINE I16x load_i32(const int32_t* p) {
  return {vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)};
}
OCTAVO_INLINE void store_i32(int32_t* p, I16x x) {
  vst1q_s32(p, x.a);
  vst1q_s32(p + 4, x.b);
  vst1q_s32(p + 8, x.c);
  vst1q_s32(p + 12, x.d);
}
OCTAVO_INLINE I16x broadcast_i32(int32_t x) {
  const int32x4_t v = vdupq_n_s32(x);
  return {v, v, v, v};
}
OCTAVO_INLINE I16x add(I16x x, I16x y) {
  return {vaddq_s32(x.a, y.a), vaddq_s32(x.b, y.b), vaddq_s32(x.c, y.c), vaddq_s32(x.d, y.d)};
}
OCTAVO_INLINE I16x sub(I16x x, I16x y) {
  return {vsubq_s32(x.a, y.a), vsubq_s32(x.b, y.b), vsubq_s32(x.c, y.c), vsubq_s32(x.d, y.d)};
}
OCTAVO_INLINE I16x mul(I16x x, I16x y) {
  return {vmulq_s32(x.a, y.a), vmulq_s32(x.b, y.b), vmulq_s32(x.c, y.c), vmulq_s32(x.d, y.d)};
}
template <int kBits>
OCTAVO_INLINE I16x shift_left(I16x x) {
  return {vshlq_n_s32(x.a, kBits), vshlq_n_s32(x.b, kBits), vshlq_n_s32(x.c, kBits), vshlq_n_s32(x.d, kBits)};
}

// ---- conversions ----
OCTAVO_INLINE F16x to_f32(I16x x) {
  return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b), vcvtq_f32_s32(x.c), vcvtq_f32_s32(x.d)};
}
OCTAVO_INLINE I16x round_i32(F16x x) {
  return {vcvtnq_s32_f32(x.a), vcvtnq_s32_f32(x.b), vcvtnq_s32_f32(x.c), vcvtnq_s32_f32(x.d)};
}
OCTAVO_INLINE I16x as_i32(F16x x) {
  return {vreinterpretq_s32_f32(x.a), vreinterpretq_s32_f32(x.b), vreinterpretq_s32_f32(x.c), vreinterpretq_s32_f32(x.d)};
}
OCTAVO_INLINE F16x as_f32(I16x x) {
  return {vreinterpretq_f32_s32(x.a), vreinterpretq_f32_s32(x.b), vreinterpretq_f32_s32(x.c), vreinterpretq_f32_s32(x.d)};
}
OCTAVO_INLINE F16x load_f16(const uint16_t* p) {
  return {vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))), vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4))),
          vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 8))), vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 12)))};
}
OCTAVO_INLINE void store_f16(uint16_t* p, F16x x) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x.a)));
  vst1_u16(p + 4, vreinterpret_u16_f16(vcvt_f16_f32(x.b)));
  vst1_u16(p + 8, vreinterpret_u16_f16(vcvt_f16_f32(x.c)));
  vst1_u16(p + 12, vreinterpret_u16_f16(vcvt_f16_f32(x.d)));
}
OCTAVO_INLINE float32x4_t bf16_to_f32(const uint16_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
OCTAVO_INLINE F16x load_bf16(const uint16_t* p) {
  return {bf16_to_f32(p), bf16_to_f32(p + 4), bf16_to_f32(p + 8), bf16_to_f32(p + 12)};
}
OCTAVO_INLINE uint16x4_t f32_to_bf16(float32x4_t x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x);
  const uint32x4_t top = vshrq_n_u32(bits, 16);
  const uint32x4_t half = vaddq_u32(vandq_u32(top, vdupq_n_u32(1)), vdupq_n_u32(0x7fff));
  const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(bits, half), 16);
  return vmovn_u32(vbslq_u32(vceqq_f32(x, x), rounded, vorrq_u32(top, vdupq_n_u32(0x40))));
}
OCTAVO_INLINE void store_bf16(uint16_t* p, F16x x) {
  vst1_u16(p, f32_to_bf16(x.a));
  vst1_u16(p + 4, f32_to_bf16(x.b));
  vst1_u16(p + 8, f32_to_bf16(x.c));
  vst1_u16(p + 12, f32_to_bf16(x.d));
}
OCTAVO_INLINE I16x load_i8(const int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)), vmovl_s16(vget_low_s16(high)),
          vmovl_s16(vget_high_s16(high))};
}
OCTAVO_INLINE void store_i8(int8_t* p, I16x x) {
  const int16x8_t low = vcombine_s16(vqmovn_s32(x.a), vqmovn_s32(x.b));
  const int16x8_t high = vcombine_s16(vqmovn_s32(x.c), vqmovn_s32(x.d));
  vst1q_s8(p, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
}

// ---- masks ----
OCTAVO_INLINE M16x less(F16x x, F16x y) {
  return {vcltq_f32(x.a, y.a), vcltq_f32(x.b, y.b), vcltq_f32(x.c, y.c), vcltq_f32(x.d, y.d)};
}
OCTAVO_INLINE M16x less_equal(F16x x, F16x y) {
  return {vcleq_f32(x.a, y.a), vcleq_f32(x.b, y.b), vcleq_f32(x.c, y.c), vcleq_f32(x.d, y.d)};
}
OCTAVO_INLINE M16x equal(F16x x, F16x y) {
  return {vceqq_f32(x.a, y.a), vceqq_f32(x.b, y.b), vceqq_f32(x.c, y.c), vceqq_f32(x.d, y.d)};
}
OCTAVO_INLINE F16x select(M16x m, F16x yes, F16x no) {
  return {vbslq_f32(m.a, yes.a, no.a), vbslq_f32(m.b, yes.b, no.b), vbslq_f32(m.c, yes.c, no.c), vbslq_f32(m.d, yes.d, no.d)};
}
OCTAVO_INLINE uint32_t mask_bits(M16x m) {
  const uint32x4_t bit = {1, 2, 4, 8};
  return vaddvq_u32(vandq_u32(m.a, bit)) | vaddvq_u32(vandq_u32(m.b, bit)) << 4 | vaddvq_u32(vandq_u32(m.c, bit)) << 8 |
         vaddvq_u32(vandq_u32(m.d, bit)) << 12;
}

// ---- across lanes: halves 8, 4, 2, 1, the order of every ISA ----
OCTAVO_INLINE float reduce_add(F16x x) {
  const float32x4_t four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
OCTAVO_INLINE float reduce_max(F16x x) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.a, x.c), vmaxq_f32(x.b, x.d)));
}
OCTAVO_INLINE int32_t reduce_add_i32(I16x x) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(x.a, x.c), vaddq_s32(x.b, x.d)));
}

OCTAVO_INLINE void prefetch(const void* p) {
  __builtin_prefetch(p, 0, 3);
}
OCTAVO_INLINE void prefetch_l2(const void* p) {
  __builtin_prefetch(p, 0, 2);
}

// ---- GEMM tiles: rows per full tile, panels beside each other in a tile of that many rows ----
// 32 registers, four to a panel: up to 24 float accumulators.
constexpr int kFloatMaxRows = 6;
constexpr int kQuantMaxRows = 4;
constexpr int kStreamRows = 1;
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
// Four outputs a time: codes and activations widen to int16, products add up in int32 as (columns 0 + 2, 1 + 3), and one
// pairwise add ends the group.
template <int kBits, int kSteps>
OCTAVO_INLINE int32x4_t dot_four(const uint8_t* codes, const int8_t* a) {
  int32x4_t low = vdupq_n_s32(0), high = low;  // outputs 0, 1 and 2, 3
  for (int s = 0; s < kSteps; ++s) {
    uint8x16_t w = vld1q_u8(codes + 64 * (kBits == 8 ? s : s / 2));
    if (kBits == 4) w = s % 2 == 0 ? vandq_u8(w, vdupq_n_u8(15)) : vshrq_n_u8(w, 4);
    int32_t four;
    __builtin_memcpy(&four, a + 4 * s, 4);
    const int16x4_t x = vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four))));
    const int16x8_t w_low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(w)));
    const int16x8_t w_high = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(w)));
    low = vaddq_s32(low, vpaddq_s32(vmull_s16(vget_low_s16(w_low), x), vmull_s16(vget_high_s16(w_low), x)));
    high = vaddq_s32(high, vpaddq_s32(vmull_s16(vget_low_s16(w_high), x), vmull_s16(vget_high_s16(w_high), x)));
  }
  return vpaddq_s32(low, high);
}

template <int kBits, int kSteps, int R, int P>
OCTAVO_INLINE void dot_rows(const uint8_t* const (&codes)[P], const int8_t* const (&a)[R], I16x (&out)[R][P]) {
  for (int p = 0; p < P; ++p) {
    for (int r = 0; r < R; ++r) {
      out[r][p].a = vaddq_s32(out[r][p].a, dot_four<kBits, kSteps>(codes[p], a[r]));
      out[r][p].b = vaddq_s32(out[r][p].b, dot_four<kBits, kSteps>(codes[p] + 16, a[r]));
      out[r][p].c = vaddq_s32(out[r][p].c, dot_four<kBits, kSteps>(codes[p] + 32, a[r]));
      out[r][p].d = vaddq_s32(out[r][p].d, dot_four<kBits, kSteps>(codes[p] + 48, a[r]));
    }
  }
}

constexpr int kVectorRegisters = 8;  // F16x that the register file holds
