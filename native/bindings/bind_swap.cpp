#include "bindings/arrays.h"
#include "tape/swap_space.h"

namespace octavo {
namespace {

using Moves = Array<int32_t, 2>;
using Errors = OutArray<int32_t, 1>;

// moves [n, 2]: block, slot.
const BlockMove* check_moves(const SwapSpace& space, const KvCache& cache, const Moves& moves, const Errors& errors) {
  static_assert(sizeof(BlockMove) == 2 * sizeof(int32_t));
  require(moves.shape(1) == 2, "moves must be [n, 2]");
  require(errors.shape(0) == moves.shape(0), "errors must have one entry per move");
  const size_t num_slots = space.num_slots(cache);
  const auto* move = reinterpret_cast<const BlockMove*>(moves.data());
  for (size_t i = 0; i < moves.shape(0); ++i) {
    require(move[i].block >= 0 && move[i].block < cache.num_blocks, "a move names a block that the cache does not have");
    require(move[i].slot >= 0 && static_cast<size_t>(move[i].slot) < num_slots, "a move names a slot beyond the swap space");
  }
  return move;
}

// moves [n, 2]: slot, slot.
const SlotMove* check_shifts(const SwapSpace& space, const KvCache& cache, const Moves& moves, const Errors& errors) {
  static_assert(sizeof(SlotMove) == 2 * sizeof(int32_t));
  require(moves.shape(1) == 2, "moves must be [n, 2]");
  require(errors.shape(0) == moves.shape(0), "errors must have one entry per move");
  const size_t num_slots = space.num_slots(cache);
  const int32_t* slots = moves.data();
  for (size_t i = 0; i < 2 * moves.shape(0); ++i) {
    require(slots[i] >= 0 && static_cast<size_t>(slots[i]) < num_slots, "a move names a slot beyond the swap space");
  }
  return reinterpret_cast<const SlotMove*>(slots);
}

}  // namespace

void bind_swap(nb::module_& module) {
  nb::class_<SwapSpace>(module, "SwapSpace", "Room for KV blocks in memory, or in an open file.")
      .def(nb::init<size_t>(), nb::arg("bytes"))
      .def(nb::init<size_t, int, size_t>(), nb::arg("bytes"), nb::arg("descriptor"), nb::arg("file_offset"))
      .def_prop_ro("bytes", &SwapSpace::bytes)
      .def(
          "out",
          [](const SwapSpace& space, KvCache& cache, const Moves& moves, const Errors& errors, ThreadPool& pool) {
            const BlockMove* checked = check_moves(space, cache, moves, errors);
            const nb::gil_scoped_release release;
            space.out(cache, checked, moves.shape(0), errors.data(), pool);
          },
          nb::arg("cache"), nb::arg("moves"), nb::arg("errors"), nb::arg("pool"),
          "Copy blocks to slots, moves int32 [n, 2] of (block, slot); errors [n] get 0 or an errno.")
      .def(
          "into",
          [](const SwapSpace& space, KvCache& cache, const Moves& moves, const Errors& errors, ThreadPool& pool) {
            const BlockMove* checked = check_moves(space, cache, moves, errors);
            const nb::gil_scoped_release release;
            space.in(cache, checked, moves.shape(0), errors.data(), pool);
          },
          nb::arg("cache"), nb::arg("moves"), nb::arg("errors"), nb::arg("pool"), "Copy slots to blocks; as out.")
      .def(
          "shift",
          [](const SwapSpace& space, const KvCache& cache, const Moves& moves, const Errors& errors) {
            const SlotMove* checked = check_shifts(space, cache, moves, errors);
            const nb::gil_scoped_release release;
            space.shift(cache, checked, moves.shape(0), errors.data());
          },
          nb::arg("cache"), nb::arg("moves"), nb::arg("errors"), "Copy slots to slots, moves int32 [n, 2]; errors as out.")
      .def("resize", &SwapSpace::resize, nb::arg("bytes"), "Another size; slots within both sizes keep their content.");
}

}  // namespace octavo
