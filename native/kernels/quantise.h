// Rounds activations to int8 for the quantised GEMM.
//
// For each row and group of 32 columns: amax = max |x|, scale = amax / 127, code = round to nearest even of x * (127 / amax),
// the quotient rounded first. A group whose amax is below kTinyGroup (127 / amax could overflow) counts as zeros: scale 0,
// codes 0. Maxima, products and roundings are exact or single roundings, so all ISAs agree to the bit. A group with NaN or
// infinity gives meaningless codes, still within -127..127.

constexpr float kTinyGroup = 1e-36f;

// Nearest integer within -127..127; NaN gives 127, because max and min return their second argument for it.
OCTAVO_INLINE I16x round_code(F16x x) {
  return round_i32(max(min(x, broadcast(127.0f)), broadcast(-127.0f)));
}

OCTAVO_INLINE void quantise_group(const float* x, int8_t* codes, float* scale, int32_t* sums) {
  const F16x first = load(x), second = load(x + 16);
  const float amax = reduce_max(max(abs(first), abs(second)));
  const bool live = !(amax < kTinyGroup);
  const F16x inverse = broadcast(live ? 127.0f / amax : 0.0f);
  *scale = live ? amax / 127.0f : 0.0f;
  const I16x low = round_code(mul(first, inverse)), high = round_code(mul(second, inverse));
  store_i8(codes, low);
  store_i8(codes + 16, high);
  sums[0] = reduce_add_i32(low);
  sums[1] = reduce_add_i32(high);
}

void quantise(const QuantiseArgs& args) {
  const int cols = args.out.cols;
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    const float* x = args.x + row * args.ldx;
    for (int c = 0; c < cols; c += kActGroup) {
      quantise_group(x + c, args.out.codes + row * cols + c, args.out.scales + (row * cols + c) / kActGroup,
                     args.out.sums + (row * cols + c) / kSumGroup);
    }
  }
}
