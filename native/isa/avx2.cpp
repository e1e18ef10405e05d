// AVX2, FMA and F16C.
#include <immintrin.h>
#include <cstdint>

#include "../kernels/table.h"
#include "../simd/vec.h"

namespace octavo {
namespace avx2 {
namespace {

#include "../simd/avx2.h"
#include "../simd/avx2_dot.h"
#include "unit.h"

constexpr KernelTable kTable = make_table("avx2");

}  // namespace
}  // namespace avx2

const KernelTable* avx2_table() {
  return &avx2::kTable;
}

}  // namespace octavo
