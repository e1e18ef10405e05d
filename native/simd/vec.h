// The vector API of the kernels: sixteen lanes, whatever the machine. Every ISA header (scalar.h, avx2.h with one of
// avx2_dot.h and avxvnni_dot.h, avx512.h, neon.h) defines the same names; an ISA unit includes one of them inside its own
// namespace, then math.h (exp, tanh, silu, gelu_tanh, half_to_float, bf16_to_float).
//
// Types     F16x sixteen float32, I16x sixteen int32, M16x sixteen booleans.
// Memory    load, store (any alignment); load_n, store_n touch lanes 0..n-1 only, 0 <= n <= 16, other lanes load as 0;
//           load_i32, store_i32; load_i8; store_i8 saturates to int8; load_f16, store_f16, load_bf16, store_bf16 convert sixteen
//           halves, rounding to nearest even.
// Float     zero, broadcast, add, sub, mul, div, sqrt, abs; min(a, b) = a < b ? a : b and max(a, b) = a > b ? a : b on x86
//           (so b when either is NaN). fma(a, b, c) = a * b + c in one rounding where the machine has it, in two in the
//           portable unit; fma_exact is one rounding everywhere: int8 paths use it and agree to the bit between ISAs.
// Integer   broadcast_i32, add, sub, mul, shift_left<bits>.
// Convert   to_f32; round_i32 to nearest even, for |x| < 2^22; as_i32, as_f32 keep the bits.
// Masks     less, less_equal, equal; select(m, yes, no); mask_bits has bit i set where lane i is true.
// Lanes     reduce_add, reduce_max: halves 8, 4, 2, 1, so every ISA rounds alike; reduce_add_i32.
// Fetch     prefetch(p) asks for p's line in the L1 cache, prefetch_l2(p) in L2; any address will do.
// dot_rows  adds the int8 products of a few columns to int32 sums, for gemm_quant.h and gemm_channel.h.
// Tiles     kFloatMaxRows, kQuantMaxRows, kChannelMaxRows, kStreamRows (gemm_quant.h); float_panels, quant_panels, channel_panels: what fits the registers.
#pragma once

#define OCTAVO_INLINE inline __attribute__((always_inline))
