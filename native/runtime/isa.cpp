#include "runtime/isa.h"

#if defined(OCTAVO_AVXVNNI)
#include <cpuid.h>
#endif

namespace octavo {
namespace {

#if defined(OCTAVO_X86)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

#if defined(OCTAVO_AVXVNNI)
// Asked of the CPU itself: not every compiler that builds the unit has a name for it. That the system saves ymm registers is
// part of has_avx2.
bool has_avxvnni() {
  constexpr unsigned kLeaf = 7, kSubleaf = 1, kBit = 1u << 4;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx2() && __get_cpuid_count(kLeaf, kSubleaf, &eax, &ebx, &ecx, &edx) && (eax & kBit) != 0;
}
#endif
#endif

std::vector<const KernelTable*> usable_tables() {
  std::vector<const KernelTable*> tables;
#if defined(OCTAVO_X86)
  __builtin_cpu_init();
  if (has_avx512()) tables.push_back(avx512_table());
#if defined(OCTAVO_AVXVNNI)
  if (has_avxvnni()) tables.push_back(avxvnni_table());
#endif
  if (has_avx2()) tables.push_back(avx2_table());
#endif
#if defined(OCTAVO_ARM)
  tables.push_back(neon_table());
#endif
  tables.push_back(portable_table());
  return tables;
}

}  // namespace

std::vector<std::string> usable_isas() {
  std::vector<std::string> names;
  for (const KernelTable* table : usable_tables()) names.emplace_back(table->isa);
  return names;
}

const KernelTable* find_table(const std::string& name) {
  const auto tables = usable_tables();
  if (name == "auto") return tables.front();
  for (const KernelTable* table : tables)
    if (name == table->isa) return table;
  return nullptr;
}

}  // namespace octavo
