#include <cstdint>

#include "bindings/arrays.h"
#include "kvcache/kv_cache.h"
#include "kvcache/move_tokens.h"
#include "runtime/thread_pool.h"

namespace octavo {

namespace {

using Moves = Array<int32_t, 2>;

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

// moves [n, 2]: block, row of host.
const BlockMove* check_moves(const KvCache& cache, const Moves& moves, size_t rows, size_t row_bytes) {
  static_assert(sizeof(BlockMove) == 2 * sizeof(int32_t));
  require(moves.shape(1) == 2, "moves must be [n, 2]");
  require(row_bytes == cache.block_bytes(), "a row of host memory must be as large as a block");
  const auto* move = reinterpret_cast<const BlockMove*>(moves.data());
  for (size_t i = 0; i < moves.shape(0); ++i) {
    require(move[i].block >= 0 && move[i].block < cache.num_blocks, "a move names a block that the cache does not have");
    require(move[i].row >= 0 && static_cast<size_t>(move[i].row) < rows, "a move names a row that host memory does not have");
  }
  return move;
}

}  // namespace

void bind_kvcache(nb::module_& module) {
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
           "Moves tokens here from a cache that differs in its blocks alone, and spends that one.")
      .def(
          "to_host",
          [](const KvCache& cache, const Moves& moves, const OutArray<uint8_t, 2>& host, ThreadPool& pool) {
            const BlockMove* checked = check_moves(cache, moves, host.shape(0), host.shape(1));
            const nb::gil_scoped_release release;
            cache.to_host(checked, moves.shape(0), host.data(), pool);
          },
          nb::arg("moves"), nb::arg("host"), nb::arg("pool"),
          "Copy blocks to rows of host [rows, bytes of a block]; moves int32 [n, 2] of (block, row).")
      .def(
          "from_host",
          [](KvCache& cache, const Moves& moves, const Array<uint8_t, 2>& host, ThreadPool& pool) {
            const BlockMove* checked = check_moves(cache, moves, host.shape(0), host.shape(1));
            const nb::gil_scoped_release release;
            cache.from_host(checked, moves.shape(0), host.data(), pool);
          },
          nb::arg("moves"), nb::arg("host"), nb::arg("pool"), "Copy rows to blocks; as to_host.")
      .def(
          "blocks",
          [](nb::handle self) {
            const KvCache& cache = nb::cast<const KvCache&>(self);
            const size_t shape[2] = {static_cast<size_t>(cache.num_blocks), cache.block_bytes()};
            return nb::ndarray<nb::numpy, uint8_t, nb::ndim<2>>(cache.block(0), 2, shape, self);
          },
          "uint8 [num_blocks, bytes of a block], a view of the cache's memory.");

}

}  // namespace octavo
