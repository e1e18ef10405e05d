// Rounds activations to int8 for the quantised GEMM.
//
// For each row and group of columns, 32 or the whole row: amax = max |x|, scale = amax / 127, code = round to nearest even of
// x * (127 / amax), the quotient rounded first. A group whose amax is below kTinyGroup (127 / amax could overflow) counts as
// zeros: scale 0, codes 0. Maxima, products and roundings are exact or single roundings, so all ISAs agree to the bit. A group with NaN or
// infinity gives meaningless codes, still within -127..127.

constexpr float kTinyGroup = 1e-36f;

// Nearest integer within -127..127; NaN gives 127, because max and min return their second argument for it.
OCTAVO_INLINE I16x round_code(F16x x) {
  return round_i32(max(min(x, broadcast(127.0f)), broadcast(-127.0f)));
}

// 127 / amax, and the scale that undoes it.
OCTAVO_INLINE F16x inverse_scale(float amax, float* scale) {
  const bool live = !(amax < kTinyGroup);
  *scale = live ? amax / 127.0f : 0.0f;
  return broadcast(live ? 127.0f / amax : 0.0f);
}

OCTAVO_INLINE void quantise_group(const float* x, int8_t* codes, float* scale, int32_t* sums, float* product) {
  const F16x first = load(x), second = load(x + 16);
  const F16x inverse = inverse_scale(reduce_max(max(abs(first), abs(second))), scale);
  const I16x low = round_code(mul(first, inverse)), high = round_code(mul(second, inverse));
  store_i8(codes, low);
  store_i8(codes + 16, high);
  sums[0] = reduce_add_i32(low);
  sums[1] = reduce_add_i32(high);
  *product = *scale * static_cast<float>(sums[0] + sums[1]);
}

OCTAVO_INLINE void quantise_row(const float* x, int cols, int8_t* codes, float* scale, int32_t* sum) {
  F16x largest = abs(load(x));
  for (int c = 16; c < cols; c += 16) largest = max(largest, abs(load(x + c)));
  const F16x inverse = inverse_scale(reduce_max(largest), scale);
  I16x total = broadcast_i32(0);
  for (int c = 0; c < cols; c += 16) {
    const I16x code = round_code(mul(load(x + c), inverse));
    store_i8(codes + c, code);
    total = add(total, code);
  }
  *sum = reduce_add_i32(total);
}

void quantise(const QuantiseArgs& args) {
  const QuantRows& out = args.out;
  const int cols = out.cols;
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    const float* x = args.x + row * args.ldx;
    if (out.group == 0) {
      quantise_row(x, cols, out.codes + row * cols, out.scales + row, out.sums + row);
      continue;
    }
    for (int c = 0; c < cols; c += kActGroup) {
      const int64_t at = row * cols + c;
      const float* group = x + c;
      alignas(64) float gathered[kActGroup];
      if (args.order != nullptr) {
        for (int i = 0; i < kActGroup; ++i) gathered[i] = x[args.order[c + i]];
        group = gathered;
      }
      quantise_group(group, out.codes + at, out.scales + at / kActGroup, out.sums + at / kSumGroup, out.products + at / kActGroup);
    }
  }
}
