// The body of every ISA unit: all kernels, then their table. Included once, inside the unit's anonymous namespace and after
// its simd header; the includes of the standard library stay outside, in the unit.

#include "../simd/math.h"

#include "../kernels/gemm_float.h"
#include "../kernels/gemm_quant.h"
#include "../kernels/gemm_channel.h"
#include "../kernels/quantise.h"
#include "../kernels/embedding.h"
#include "../kernels/attention.h"
#include "../kernels/norm.h"
#include "../kernels/rope.h"
#include "../kernels/kv_write.h"
#include "../kernels/element.h"
#include "../kernels/route.h"
#include "../kernels/sample.h"
#include "../kernels/probe.h"

void gemm(const GemmArgs& args) {
  if (args.weight->kind == WeightKind::w8a8) {
    gemm_channel(args);
  } else if (has_codes(args.weight->kind)) {
    gemm_quant(args);
  } else {
    gemm_float(args);
  }
}

constexpr KernelTable make_table(const char* isa) {
  return {isa,      gemm, quantise, attention, attention_tile, attention_scratch, attention_partial, attention_merge,
          rms_norm, layer_norm, rope,    kv_write,  embedding,      add,               silu_mul,          gelu_mul,
          gelu,     softcap,    scale,   gate_rows, route,          combine,           sample,            probe_fma,
          probe_int8};
}
