// Plain C++ for any machine, and the twin of every other ISA.
#include <cstdint>

#include "../kernels/table.h"
#include "../simd/vec.h"

namespace octavo {
namespace portable {
namespace {

#include "../simd/scalar.h"
#include "unit.h"

constexpr KernelTable kTable = make_table("portable");

}  // namespace
}  // namespace portable

const KernelTable* portable_table() {
  return &portable::kTable;
}

}  // namespace octavo
