// Mixture of experts: which experts a row goes to, and the sum of what they make of it. Included inside the namespace of an ISA
// unit, after simd.

// Index of the largest of n values that is not taken, the lowest one of equals.
inline int32_t largest_left(const float* values, const bool* taken, int32_t n) {
  int32_t best = -1;
  for (int32_t i = 0; i < n; ++i) {
    if (!taken[i] && (best < 0 || values[i] > values[best])) best = i;
  }
  return best;
}

// e^(logit - largest) of one row.
inline void exponentials(const float* logits, int32_t n, float* out) {
  float largest = logits[0];
  for (int32_t i = 1; i < n; ++i) largest = logits[i] > largest ? logits[i] : largest;
  const F16x top = broadcast(largest);
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) store(out + i, exp(sub(load(logits + i), top)));
  if (i < n) store_n(out + i, exp(sub(load_n(logits + i, n - i), top)), n - i);
}

void route(const RouteArgs& args) {
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    const float* const logits = args.logits + row * args.ldx;
    float* const ids = args.out + row * args.ldout;
    float* const weights = ids + args.top_k;
    float powers[kMaxExperts];
    bool taken[kMaxExperts] = {};
    exponentials(logits, args.num_experts, powers);
    float sum = 0.0f, chosen = 0.0f;
    for (int32_t i = 0; i < args.num_experts; ++i) sum += powers[i];
    for (int32_t slot = 0; slot < args.top_k; ++slot) {
      const int32_t expert = largest_left(logits, taken, args.num_experts);
      taken[expert] = true;
      ids[slot] = static_cast<float>(expert);
      weights[slot] = powers[expert] / sum;
      chosen += weights[slot];
    }
    if (!args.renormalise) continue;
    for (int32_t slot = 0; slot < args.top_k; ++slot) weights[slot] /= chosen;
  }
}

void combine(const CombineArgs& args) {
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    const float* const weights = args.routes + row * args.ldroutes + args.top_k;
    const int32_t* const at = args.rows + row * args.top_k;
    float* const out = args.out + row * args.ldout;
    for (int32_t i = 0; i < args.cols; i += 16) {
      const int32_t n = args.cols - i < 16 ? args.cols - i : 16;
      F16x sum = zero();
      for (int32_t slot = 0; slot < args.top_k; ++slot) {
        const float* const made = args.x + at[slot] * args.ldx + i;
        const F16x part = mul(broadcast(weights[slot]), n == 16 ? load(made) : load_n(made, n));
        sum = slot == 0 ? part : add(sum, part);
      }
      n == 16 ? store(out + i, sum) : store_n(out + i, sum, n);
    }
  }
}

// out[r][c] = a[r][c] / (1 + e^-b[r][0])
void gate_rows(const ElementArgs& args) {
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    const F16x one = broadcast(1.0f);
    const F16x gate = div(one, add(one, exp(sub(zero(), broadcast(args.b[row * args.ldb])))));
    const float* const a = args.a + row * args.lda;
    float* const out = args.out + row * args.ldout;
    for (int32_t i = 0; i < args.cols; i += 16) {
      const int32_t n = args.cols - i < 16 ? args.cols - i : 16;
      if (n == 16) store(out + i, mul(load(a + i), gate));
      else store_n(out + i, mul(load_n(a + i, n), gate), n);
    }
  }
}
