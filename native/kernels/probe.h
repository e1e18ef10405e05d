// Probes of this ISA's arithmetic: what one core can do when nothing waits for memory. The limits that profiles are held against.

// Runs `rounds` rounds of independent float32 fma chains; returns the multiply-accumulates done.
double probe_fma(int64_t rounds, float* sink) {
  constexpr int kChains = kVectorRegisters >= 32 ? 24 : kVectorRegisters >= 8 ? 6 : 4;
  F16x chain[kChains];
  for (int i = 0; i < kChains; ++i) chain[i] = broadcast(static_cast<float>(i));
  const F16x a = broadcast(sink[0]), b = broadcast(sink[1]);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) chain[i] = fma(a, b, chain[i]);
  }
  for (int i = 0; i < kChains; ++i) sink[0] += reduce_add(chain[i]);
  return static_cast<double>(rounds) * kChains * 16;
}

// The same for int8 products on operands that stay in the first-level cache. Six rows, where a tile takes as many, keep the
// multipliers of every ISA busy; more do not.
double probe_int8(int64_t rounds, float* sink) {
  constexpr int kRows = kChannelMaxRows < 6 ? kChannelMaxRows : 6, kPanels = quant_panels(kRows), kSteps = 8;
  alignas(64) uint8_t codes[kPanels][64 * kSteps];
  alignas(64) int8_t x[kRows][4 * kSteps];
  const uint8_t* code_rows[kPanels];
  const int8_t* x_rows[kRows];
  I16x out[kRows][kPanels];
  for (int p = 0; p < kPanels; ++p) {
    for (int i = 0; i < 64 * kSteps; ++i) codes[p][i] = static_cast<uint8_t>(i * 7 + p);
    code_rows[p] = codes[p];
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < 4 * kSteps; ++i) x[r][i] = static_cast<int8_t>(i * 5 + r);
    x_rows[r] = x[r];
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) out[r][p] = broadcast_i32(0);
  }
  for (int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : : "r"(codes), "r"(x) : "memory");   // the operands might have changed: nothing may be kept from the last round
    dot_rows<8, kSteps, kRows, kPanels>(code_rows, x_rows, out);
  }
  I16x total = broadcast_i32(0);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) total = add(total, out[r][p]);   // all are used, or the compiler drops some
  }
  sink[0] += static_cast<float>(reduce_add_i32(total));
  return static_cast<double>(rounds) * kRows * kPanels * kSteps * 64;
}
