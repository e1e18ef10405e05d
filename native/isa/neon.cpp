// AArch64 NEON.
#include <arm_neon.h>
#include <cstdint>

#include "../kernels/table.h"
#include "../simd/vec.h"

namespace octavo {
namespace neon {
namespace {

#include "../simd/neon.h"
#include "unit.h"

constexpr KernelTable kTable = make_table("neon");

}  // namespace
}  // namespace neon

const KernelTable* neon_table() {
  return &neon::kTable;
}

}  // namespace octavo
