// RMS norm of groups of columns (Zhang and Sennrich, 2019). Included inside the namespace of an ISA unit, after simd.

// Four running sums of 16 lanes over vectors 0, 1, 2, 3 modulo 4, then pairwise: an order that depends on cols alone.
F16x sum_of_squares(const float* x, int32_t cols) {
  F16x sums[4] = {zero(), zero(), zero(), zero()};
  int32_t i = 0;
  for (; i + 64 <= cols; i += 64) {
    for (int32_t j = 0; j < 4; ++j) {
      const F16x v = load(x + i + 16 * j);
      sums[j] = fma(v, v, sums[j]);
    }
  }
  for (int32_t j = 0; i < cols; i += 16, ++j) {
    const F16x v = load_n(x + i, cols - i < 16 ? cols - i : 16);
    sums[j] = fma(v, v, sums[j]);
  }
  return add(add(sums[0], sums[1]), add(sums[2], sums[3]));
}

// out = x / sqrt(mean(x^2) + eps) * weight, in place if out is x.
void rms_norm_group(const float* x, const float* weight, float* out, int32_t cols, float eps) {
  const float mean = reduce_add(sum_of_squares(x, cols)) / static_cast<float>(cols);
  const F16x inverse = div(broadcast(1.0f), sqrt(broadcast(mean + eps)));
  int32_t i = 0;
  for (; i + 16 <= cols; i += 16) {
    store(out + i, mul(mul(load(x + i), inverse), load(weight + i)));
  }
  if (i < cols) {
    const int32_t n = cols - i;
    store_n(out + i, mul(mul(load_n(x + i, n), inverse), load_n(weight + i, n)), n);
  }
}

// out = (x - mean) / sqrt(variance + eps) * weight + bias, in place if out is x (Ba, Kiros and Hinton, 2016). The variance is
// that of the differences, so that a large mean costs no digits. All sums have the order of sum_of_squares.
void layer_norm_row(const float* x, const float* weight, const float* bias, float* out, int32_t cols, float eps) {
  F16x sums[4] = {zero(), zero(), zero(), zero()};
  for (int32_t i = 0, j = 0; i < cols; i += 16, ++j) {
    sums[j % 4] = add(sums[j % 4], load_n(x + i, cols - i < 16 ? cols - i : 16));
  }
  const float mean = reduce_add(add(add(sums[0], sums[1]), add(sums[2], sums[3]))) / static_cast<float>(cols);
  const F16x center = broadcast(mean);
  F16x squares[4] = {zero(), zero(), zero(), zero()};
  for (int32_t i = 0, j = 0; i < cols; i += 16, ++j) {
    const int32_t n = cols - i < 16 ? cols - i : 16;
    float difference[16] = {};
    store_n(difference, sub(load_n(x + i, n), center), n);
    const F16x v = load(difference);
    squares[j % 4] = fma(v, v, squares[j % 4]);
  }
  const float variance = reduce_add(add(add(squares[0], squares[1]), add(squares[2], squares[3]))) / static_cast<float>(cols);
  const F16x inverse = div(broadcast(1.0f), sqrt(broadcast(variance + eps)));
  for (int32_t i = 0; i < cols; i += 16) {
    const int32_t n = cols - i < 16 ? cols - i : 16;
    const F16x scaled = mul(mul(sub(load_n(x + i, n), center), inverse), load_n(weight + i, n));
    store_n(out + i, add(scaled, load_n(bias + i, n)), n);
  }
}

void layer_norm(const NormArgs& args) {
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    layer_norm_row(args.x + row * args.ldx, args.weight, args.bias, args.out + row * args.ldout, args.cols, args.eps);
  }
}

void rms_norm(const NormArgs& args) {
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    const float* const x = args.x + row * args.ldx;
    float* const out = args.out + row * args.ldout;
    for (int64_t group = 0; group < args.groups; ++group) {
      rms_norm_group(x + group * args.cols, args.weight, out + group * args.cols, args.cols, args.eps);
    }
  }
}
