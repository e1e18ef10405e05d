// Functions built on the vector API alone, the same in every ISA. Included after the ISA header.

// e^x. Error below 2 ulp; exp(0) is exactly 1; x < -87.3 gives 0; from 88.3 on the result stays at e^88.3 (2.2e38); NaN stays.
// Method: x = n ln 2 + r with |r| <= ln 2 / 2, e^r by a polynomial of degree 6 (Cephes expf), times 2^n through the exponent.
OCTAVO_INLINE F16x exp(F16x x) {
  const F16x lowest = broadcast(-87.3f);
  const F16x clamped = max(lowest, min(broadcast(88.3f), x));
  // A float of 1.5 * 2^23 and more has no fraction, and its last bits count: n as a float and as an integer in one step.
  const F16x magic = broadcast(12582912.0f);
  const F16x counted = fma(clamped, broadcast(1.44269504088896341f), magic);
  const F16x n = sub(counted, magic);
  // ln 2 in two parts; the first has few enough bits that its product with n is exact.
  F16x r = fma(n, broadcast(-0.693359375f), clamped);
  r = fma(n, broadcast(2.12194440e-4f), r);
  F16x p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  p = add(fma(p, mul(r, r), r), broadcast(1.0f));
  const F16x power = as_f32(shift_left<23>(add(as_i32(counted), broadcast_i32(127))));
  return select(less(x, lowest), zero(), mul(p, power));
}

// tanh(x). Below 0.625 an odd polynomial (Cephes tanhf) keeps the relative error small, above it 1 - 2 / (e^2|x| + 1).
OCTAVO_INLINE F16x tanh(F16x x) {
  const F16x magnitude = abs(x);
  const F16x s = mul(x, x);
  F16x p = broadcast(-5.70498872745e-3f);
  p = fma(p, s, broadcast(2.06390887954e-2f));
  p = fma(p, s, broadcast(-5.37397155531e-2f));
  p = fma(p, s, broadcast(1.33314422036e-1f));
  p = fma(p, s, broadcast(-3.33332819422e-1f));
  const F16x small = fma(mul(p, s), x, x);
  const F16x one = broadcast(1.0f);
  const F16x large = sub(one, div(broadcast(2.0f), add(exp(add(magnitude, magnitude)), one)));
  const F16x signed_large = select(less(x, zero()), sub(zero(), large), large);
  return select(less(magnitude, broadcast(0.625f)), small, signed_large);
}

// x / (1 + e^-x)
OCTAVO_INLINE F16x silu(F16x x) {
  return div(x, add(broadcast(1.0f), exp(sub(zero(), x))));
}

// The tanh form of gelu: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) (Hendrycks and Gimpel, 2016).
OCTAVO_INLINE F16x gelu_tanh(F16x x) {
  const F16x cube = mul(mul(x, x), x);
  const F16x inner = mul(broadcast(0.7978845608f), fma(broadcast(0.044715f), cube, x));
  return mul(mul(broadcast(0.5f), x), add(broadcast(1.0f), tanh(inner)));
}

// x / 2 * (1 + erf(x / sqrt(2))). The error function by Abramowitz and Stegun, 7.1.26: absolute error below 1.5e-7.
OCTAVO_INLINE F16x gelu_erf(F16x x) {
  const F16x one = broadcast(1.0f);
  const F16x z = mul(abs(x), broadcast(0.70710678118654752f));
  const F16x t = div(one, fma(broadcast(0.3275911f), z, one));
  F16x p = broadcast(1.061405429f);
  p = fma(p, t, broadcast(-1.453152027f));
  p = fma(p, t, broadcast(1.421413741f));
  p = fma(p, t, broadcast(-0.284496736f));
  p = fma(p, t, broadcast(0.254829592f));
  const F16x tail = mul(mul(p, t), exp(sub(zero(), mul(z, z))));   // 1 - erf(|x| / sqrt(2))
  const F16x twice = select(less(x, zero()), tail, sub(broadcast(2.0f), tail));
  return mul(mul(broadcast(0.5f), x), twice);
}

// One float16 to float32, exact (see load_f16 for sixteen).
OCTAVO_INLINE float half_to_float(uint16_t half) {
  const uint32_t magnitude = (half & 0x7fffu) << 13;
  float value;
  __builtin_memcpy(&value, &magnitude, sizeof value);
  value *= 0x1p112f;
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  if (magnitude >= 0x0f800000u) bits |= 0x7f800000u;  // infinity, NaN
  bits |= (half & 0x8000u) << 16;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

// One bfloat16 to float32, exact.
OCTAVO_INLINE float bf16_to_float(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
