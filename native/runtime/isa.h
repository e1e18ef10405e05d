// Which kernel variants were built, which of them this CPU can run, and the choice between them.
#pragma once

#include <string>
#include <vector>

#include "kernels/table.h"

namespace octavo {

// Names of the variants this CPU can run, best first; "portable" is always the last.
std::vector<std::string> usable_isas();

// The table of a variant; "auto" is the best usable one. Null when the name is unknown or the CPU lacks it.
const KernelTable* find_table(const std::string& name);

}  // namespace octavo
