#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/arrays.h"
#include "runtime/isa.h"
#include "runtime/limits.h"
#include "runtime/thread_pool.h"
#include "tape/kv_cache.h"
#include "tape/relayout.h"

namespace octavo {

namespace {

// runs [n, 3]: source slot, target slot, count. Every run lies within one block of either cache.
void take_checked(KvCache& target, KvCache& source, const Array<int32_t, 2>& runs, ThreadPool& pool) {
  static_assert(sizeof(TokenRun) == 3 * sizeof(int32_t));
  require(runs.shape(1) == 3, "runs must be [n, 3]");
  require(&target != &source, "a cache cannot take its own tokens");
  require(target.kind == source.kind && target.num_layers == source.num_layers &&
              target.num_kv_heads == source.num_kv_heads && target.head_dim == source.head_dim,
          "the caches differ in more than their blocks");
  require(source.memory.bytes() > 0, "the source cache was taken from before");
  const auto* run = reinterpret_cast<const TokenRun*>(runs.data());
  const auto fits = [](const KvCache& cache, int32_t slot, int32_t count) {
    return slot >= 0 && slot / cache.block_size < cache.num_blocks && slot % cache.block_size + count <= cache.block_size;
  };
  for (size_t i = 0; i < runs.shape(0); ++i) {
    require(run[i].count > 0 && run[i].count <= source.block_size && fits(source, run[i].source_slot, run[i].count) &&
                fits(target, run[i].target_slot, run[i].count),
            "a run of tokens leaves its block");
  }
  const nb::gil_scoped_release release;
  take_tokens(target, source, run, runs.shape(0), pool);
}

}  // namespace

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
  nb::class_<KvCache>(module, "KvCache", "Memory of keys and values, by block and layer.")
      .def(nb::init<KvKind, int32_t, int32_t, int32_t, int32_t, int32_t>(), nb::arg("kind"), nb::arg("num_layers"),
           nb::arg("num_blocks"), nb::arg("num_kv_heads"), nb::arg("block_size"), nb::arg("head_dim"))
      .def_prop_ro("bytes", &KvCache::bytes)
      .def(
          "copy_blocks",
          [](KvCache& cache, const Array<int32_t, 2>& pairs) {
            require(pairs.shape(1) == 2, "pairs must be [n, 2]");
            require_range(pairs.data(), pairs.size(), 0, cache.num_blocks, "block id");
            for (size_t i = 0; i < pairs.shape(0); ++i) cache.copy_block(pairs.data()[2 * i], pairs.data()[2 * i + 1]);
          },
          nb::arg("pairs"), nb::call_guard<nb::gil_scoped_release>())
      .def("take_tokens", &take_checked, nb::arg("source"), nb::arg("runs"), nb::arg("pool"),
           "Moves tokens here from a cache that differs in its blocks alone, and spends that one.");
}

}  // namespace octavo
