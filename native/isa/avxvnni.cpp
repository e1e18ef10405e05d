// AVX2, FMA, F16C and AVX-VNNI: int8 products of 256 bits in VEX encoding, for CPUs without AVX-512.
#include <immintrin.h>
#include <cstdint>

#include "../kernels/table.h"
#include "../simd/vec.h"

namespace octavo {
namespace avxvnni {
namespace {

#include "../simd/avx2.h"
#include "../simd/avxvnni_dot.h"
#include "unit.h"

constexpr KernelTable kTable = make_table("avxvnni");

}  // namespace
}  // namespace avxvnni

const KernelTable* avxvnni_table() {
  return &avxvnni::kTable;
}

}  // namespace octavo
