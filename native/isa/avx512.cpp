// AVX-512 F, BW, DQ, VL and VNNI.
// GCC 12 warns about its own intrinsics (bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#include <cstdint>

#include "../kernels/table.h"
#include "../simd/vec.h"

namespace octavo {
namespace avx512 {
namespace {

#include "../simd/avx512.h"
#include "unit.h"

constexpr KernelTable kTable = make_table("avx512");

}  // namespace
}  // namespace avx512

const KernelTable* avx512_table() {
  return &avx512::kTable;
}

}  // namespace octavo
