#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/arrays.h"
#include "runtime/isa.h"
#include "runtime/limits.h"
#include "runtime/thread_pool.h"
#include "tape/kv_cache.h"

namespace octavo {

void bind_runtime(nb::module_& module) {
  module.def("usable_isas", &usable_isas, "Kernel variants this CPU can run, best first.");
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
  nb::enum_<KvKind>(module, "KvKind")
      .value("f32", KvKind::f32)
      .value("f16", KvKind::f16)
      .value("bf16", KvKind::bf16)
      .value("i8", KvKind::i8);
  nb::class_<KvCache>(module, "KvCache", "Memory of keys and values, by layer and block.")
      .def(nb::init<KvKind, int32_t, int32_t, int32_t, int32_t, int32_t>(), nb::arg("kind"), nb::arg("num_layers"),
           nb::arg("num_blocks"), nb::arg("num_kv_heads"), nb::arg("block_size"), nb::arg("head_dim"))
      .def_prop_ro("bytes", [](const KvCache& cache) { return 2 * cache.block_bytes() * cache.num_blocks * cache.num_layers; })
      .def(
          "copy_blocks",
          [](KvCache& cache, const Array<int32_t, 2>& pairs) {
            require(pairs.shape(1) == 2, "pairs must be [n, 2]");
            require_range(pairs.data(), pairs.size(), 0, cache.num_blocks, "block id");
            for (size_t i = 0; i < pairs.shape(0); ++i) cache.copy_block(pairs.data()[2 * i], pairs.data()[2 * i + 1]);
          },
          nb::arg("pairs"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace octavo
