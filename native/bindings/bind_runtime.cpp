#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/arrays.h"
#include "runtime/file_guard.h"
#include "runtime/isa.h"
#include "runtime/limits.h"
#include "runtime/thread_pool.h"

namespace octavo {

void bind_runtime(nb::module_& module) {
  module.def("usable_isas", &usable_isas, "Kernel variants this CPU can run, best first.");
  nb::class_<FileGuard>(module, "FileGuard", "While it lives, a map reads zeros where its file was cut short, instead of SIGBUS.")
      .def(
          "__init__",
          [](FileGuard* guard, const Array<uint8_t, 1>& map) { new (guard) FileGuard(map.data(), map.size()); },
          nb::arg("map"), "The guard keeps the address alone: it must not outlive the map.")
      .def_prop_ro("was_cut", &FileGuard::was_cut);
  nb::class_<ThreadPool>(module, "ThreadPool", "A fixed team of compute threads.")
      .def(nb::init<int>(), nb::arg("size"))
      .def_prop_ro("size", &ThreadPool::size);
  nb::class_<Limits>(module, "Limits", "What this machine can do at most, all threads together.")
      .def_ro("read_bytes_per_s", &Limits::read_bytes_per_s)
      .def_ro("fma_macs_per_s", &Limits::fma_macs_per_s)
      .def_ro("int8_macs_per_s", &Limits::int8_macs_per_s);
  module.def(
      "measure_limits",
      [](ThreadPool& pool, const std::string& isa) {
        const KernelTable* kernels = find_table(isa);
        require(kernels != nullptr, "this CPU cannot run the kernel variant, or it was not built");
        nb::gil_scoped_release release;
        return measure_limits(pool, *kernels);
      },
      nb::arg("pool"), nb::arg("isa"), "Measure memory and arithmetic; takes about half a second.");
}

}  // namespace octavo
