// Element-wise operations on rows. Included inside the namespace of an ISA unit, after simd.

// out[r][c] = op(a[r][c], b[r][c]); out may be a or b. Op maps two F16x to one.
template <typename Op>
inline void for_each_element(const ElementArgs& args, Op op) {
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    const float* const a = args.a + row * args.lda;
    const float* const b = args.b + row * args.ldb;
    float* const out = args.out + row * args.ldout;
    int32_t i = 0;
    for (; i + 16 <= args.cols; i += 16) {
      store(out + i, op(load(a + i), load(b + i)));
    }
    if (i < args.cols) {
      const int32_t n = args.cols - i;
      store_n(out + i, op(load_n(a + i, n), load_n(b + i, n)), n);
    }
  }
}

void add(const ElementArgs& args) {
  for_each_element(args, [](F16x a, F16x b) { return add(a, b); });
}

void silu_mul(const ElementArgs& args) {
  for_each_element(args, [](F16x gate, F16x up) { return mul(silu(gate), up); });
}

void gelu_mul(const ElementArgs& args) {
  for_each_element(args, [](F16x gate, F16x up) { return mul(gelu_tanh(gate), up); });
}

// For an op that does not read b.
inline ElementArgs unary(const ElementArgs& args) {
  ElementArgs same = args;
  same.b = args.a;
  same.ldb = args.lda;
  return same;
}

void gelu(const ElementArgs& args) {
  for_each_element(unary(args), [](F16x a, F16x) { return gelu_erf(a); });
}

// cap * tanh(a / cap)
void softcap(const ElementArgs& args) {
  const F16x cap = broadcast(args.scalar);
  for_each_element(unary(args), [cap](F16x a, F16x) { return mul(cap, tanh(div(a, cap))); });
}

void scale(const ElementArgs& args) {
  const F16x factor = broadcast(args.scalar);
  for_each_element(unary(args), [factor](F16x a, F16x) { return mul(factor, a); });
}
