#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "bindings/arrays.h"
#include "runtime/isa.h"
#include "tape/immediate.h"

namespace octavo {
namespace {

const KernelTable* kernels_of(const std::string& isa, int32_t max_tokens, int32_t max_logits) {
  const KernelTable* kernels = find_table(isa);
  require(kernels != nullptr, "this CPU cannot run the kernel variant, or it was not built");
  require(max_tokens > 0 && max_logits > 0, "max_tokens and max_logits must be positive");
  return kernels;
}

std::shared_ptr<Executor> make_executor(std::shared_ptr<ThreadPool> pool, const std::string& isa, std::shared_ptr<KvCache> cache,
                                        std::shared_ptr<const Recording> recording, int32_t max_tokens, int32_t max_logits) {
  const KernelTable* kernels = kernels_of(isa, max_tokens, max_logits);
  return std::make_shared<Executor>(std::move(pool), kernels, std::move(cache), std::move(recording), max_tokens, max_logits);
}

std::shared_ptr<Immediate> make_immediate(std::shared_ptr<ThreadPool> pool, const std::string& isa,
                                          std::shared_ptr<KvCache> cache, int32_t max_tokens, int32_t max_logits) {
  const KernelTable* kernels = kernels_of(isa, max_tokens, max_logits);
  return std::make_shared<Immediate>(std::move(pool), kernels, std::move(cache), max_tokens, max_logits);
}

// Arrays of one step that passed every check; keeps nothing alive, the caller holds the arrays during the run.
StepArrays check_step(const Array<int32_t, 1>& token_ids, const Array<int32_t, 1>& positions, const Array<int32_t, 1>& slots,
                      const Array<int32_t, 1>& query_start, const Array<int32_t, 1>& first_position,
                      const Array<int32_t, 2>& block_tables, const Array<int32_t, 1>& logit_rows) {
  const size_t tokens = token_ids.shape(0), sequences = first_position.shape(0);
  require(tokens > 0, "a step needs at least one token");
  require(positions.shape(0) == tokens && slots.shape(0) == tokens, "positions and slots must have one entry per token");
  require(query_start.shape(0) == sequences + 1, "query_start must have one entry more than there are sequences");
  require(block_tables.shape(0) == sequences, "block_tables must have one row per sequence");
  require(query_start.data()[0] == 0 && query_start.data()[sequences] == static_cast<int32_t>(tokens),
          "query_start must run from 0 to the number of tokens");
  for (size_t s = 0; s < sequences; ++s)
    require(query_start.data()[s] < query_start.data()[s + 1], "every sequence needs at least one token");
  require_range(logit_rows.data(), logit_rows.shape(0), 0, static_cast<int64_t>(tokens), "logit row");
  return {token_ids.data(),      positions.data(),  slots.data(),
          query_start.data(),    first_position.data(), block_tables.data(),
          logit_rows.data(),     static_cast<int32_t>(tokens), static_cast<int32_t>(sequences),
          static_cast<int32_t>(block_tables.shape(1)), static_cast<int32_t>(logit_rows.shape(0))};
}

// Block ids are checked up to each sequence's last position; entries beyond are never read.
void check_cache_indices(const StepArrays& step, const KvCache& cache, int32_t rope_positions) {
  const int64_t num_slots = static_cast<int64_t>(cache.num_blocks) * cache.block_size;
  require_range(step.positions, step.num_tokens, 0, rope_positions, "position");
  require_range(step.slots, step.num_tokens, 0, num_slots, "slot");
  for (int32_t s = 0; s < step.num_seqs; ++s) {
    const int64_t end = step.first_position[s] + step.query_start[s + 1] - step.query_start[s];
    require(step.first_position[s] >= 0 && end <= static_cast<int64_t>(step.max_blocks) * cache.block_size,
            "a sequence reaches beyond its block table");
    require_range(step.block_tables + static_cast<int64_t>(s) * step.max_blocks, (end + cache.block_size - 1) / cache.block_size,
                  0, cache.num_blocks, "block id");
  }
}

void check_size(const StepArrays& step, const Executor& executor) {
  require(step.num_tokens <= executor.max_rows(RowKind::tokens) && step.num_logits <= executor.max_rows(RowKind::logits),
          "the step is larger than the program was made for");
}

AttentionLayer attention_layer(int32_t layer, int32_t num_heads, int32_t num_kv_heads, int32_t head_dim, float scale,
                               int32_t window, float softcap, bool causal) {
  require(num_kv_heads > 0 && num_heads % num_kv_heads == 0, "num_heads must be a multiple of num_kv_heads");
  return {layer, num_heads, num_kv_heads, head_dim, scale, window, softcap, causal};
}

// Whether two weights differ in their numbers alone.
bool are_alike(const Linear& a, const Linear& b) {
  return a.column_order == b.column_order &&
         std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end(), [](const Part& x, const Part& y) {
    return x.matrix.rows == y.matrix.rows && x.matrix.cols == y.matrix.cols &&
           x.is_quantised() == y.is_quantised() &&
           (!x.is_quantised() || activation_group(x.matrix) == activation_group(y.matrix));
  });
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> read_rows(const Executor& executor, View view, int32_t rows, nb::handle owner) {
  require(view.buffer >= 0, "the model has no such output");
  int64_t stride = 0;
  float* data = const_cast<float*>(executor.read(view, &stride));
  const size_t shape[2] = {static_cast<size_t>(rows), static_cast<size_t>(view.cols)};
  const int64_t strides[2] = {stride, 1};
  return nb::ndarray<nb::numpy, float, nb::ndim<2>>(data, 2, shape, owner, strides);
}

void bind_recorder(nb::module_& module) {
  nb::class_<Recorder>(module, "Recorder", "Turns model operations into instructions.")
      .def_static(
          "create", [](std::shared_ptr<KvCache> cache) { return std::make_shared<Recorder>(std::move(cache)); },
          nb::arg("cache"))
      .def(
          "embedding",
          [](Recorder& recorder, std::shared_ptr<const Linear> table, float scale, IndexKind index) {
            require(table->parts.size() == 1, "embedding: the table must have one part");
            require(table->column_order.empty(), "embedding: the table's columns must be in order");
            nb::gil_scoped_release release;
            return recorder.embedding(std::move(table), scale, index);
          },
          nb::arg("table"), nb::arg("scale"), nb::arg("index"))
      .def(
          "linear",
          [](Recorder& recorder, View x, std::shared_ptr<const Linear> weight) {
            require(x.cols == weight->cols, "linear: the input's columns do not match the weight");
            nb::gil_scoped_release release;
            return recorder.linear(x, std::move(weight));
          },
          nb::arg("x"), nb::arg("weight"))
      .def(
          "rms_norm",
          [](Recorder& recorder, View x, std::shared_ptr<const Vector> weight, float eps) {
            require(weight->size > 0 && x.cols % weight->size == 0, "rms_norm: columns must be a multiple of the weight's size");
            nb::gil_scoped_release release;
            return recorder.rms_norm(x, std::move(weight), eps);
          },
          nb::arg("x"), nb::arg("weight"), nb::arg("eps"))
      .def(
          "layer_norm",
          [](Recorder& recorder, View x, std::shared_ptr<const Vector> weight, std::shared_ptr<const Vector> bias, float eps) {
            require(weight->size == x.cols && bias->size == x.cols,
                    "layer_norm: weight and bias must have one value per column");
            nb::gil_scoped_release release;
            return recorder.layer_norm(x, std::move(weight), std::move(bias), eps);
          },
          nb::arg("x"), nb::arg("weight"), nb::arg("bias"), nb::arg("eps"))
      .def(
          "add",
          [](Recorder& recorder, View a, View b) {
            require(a.cols == b.cols && recorder.kind_of(a) == recorder.kind_of(b), "add: shapes differ");
            nb::gil_scoped_release release;
            return recorder.add(a, b);
          },
          nb::arg("a"), nb::arg("b"))
      .def(
          "rope",
          [](Recorder& recorder, View x, std::shared_ptr<const RopeTable> table, int32_t head_dim) {
            require(head_dim > 0 && x.cols % head_dim == 0 && 2 * table->half <= head_dim, "rope: head_dim does not fit");
            require(recorder.kind_of(x) == RowKind::tokens, "rope: rows must be tokens");
            nb::gil_scoped_release release;
            return recorder.rope(x, std::move(table), head_dim);
          },
          nb::arg("x"), nb::arg("table"), nb::arg("head_dim"))
      .def(
          "kv_write",
          [](Recorder& recorder, View k, View v, const AttentionLayer& layer) {
            require(recorder.fits_cache(layer) && k.cols == layer.num_kv_heads * layer.head_dim && v.cols == k.cols,
                    "kv_write: keys and values do not fit the KV cache");
            nb::gil_scoped_release release;
            recorder.kv_write(k, v, layer);
          },
          nb::arg("k"), nb::arg("v"), nb::arg("layer"))
      .def(
          "attention",
          [](Recorder& recorder, View q, const AttentionLayer& layer) {
            require(recorder.fits_cache(layer) && q.cols == layer.num_heads * layer.head_dim,
                    "attention: queries do not fit the KV cache");
            nb::gil_scoped_release release;
            return recorder.attention(q, layer);
          },
          nb::arg("q"), nb::arg("layer"))
      .def(
          "silu_mul",
          [](Recorder& recorder, View x) {
            require(x.cols % 2 == 0, "silu_mul: columns must be even");
            nb::gil_scoped_release release;
            return recorder.gated(OpCode::silu_mul, x);
          },
          nb::arg("gate_up"))
      .def(
          "gelu_mul",
          [](Recorder& recorder, View x) {
            require(x.cols % 2 == 0, "gelu_mul: columns must be even");
            nb::gil_scoped_release release;
            return recorder.gated(OpCode::gelu_mul, x);
          },
          nb::arg("gate_up"))
      .def("gelu", &Recorder::gelu, nb::arg("x"), nb::call_guard<nb::gil_scoped_release>())
      .def("select_rows", &Recorder::select_rows, nb::arg("x"), nb::call_guard<nb::gil_scoped_release>())
      .def("softcap", &Recorder::softcap, nb::arg("x"), nb::arg("cap"), nb::call_guard<nb::gil_scoped_release>())
      .def("scale", &Recorder::scale, nb::arg("x"), nb::arg("factor"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "gate_rows",
          [](Recorder& recorder, View x, View gate) {
            require(gate.cols == 1 && recorder.kind_of(x) == recorder.kind_of(gate), "gate_rows: one gate per row is needed");
            nb::gil_scoped_release release;
            return recorder.gate_rows(x, gate);
          },
          nb::arg("x"), nb::arg("gate"))
      .def(
          "route",
          [](Recorder& recorder, View logits, int32_t top_k, bool renormalise) {
            require(recorder.kind_of(logits) == RowKind::tokens, "route: rows must be tokens");
            require(logits.cols <= kMaxExperts, "route: more than 1024 experts");
            require(top_k > 0 && top_k <= logits.cols, "route: top_k must lie between 1 and the number of experts");
            const Recording& so_far = *recorder.recording();
            require(so_far.top_k == 0 || (so_far.top_k == top_k && so_far.num_experts == logits.cols),
                    "route: all layers must choose equally many of equally many experts");
            nb::gil_scoped_release release;
            return recorder.route(logits, {top_k, renormalise});
          },
          nb::arg("logits"), nb::arg("top_k"), nb::arg("renormalise"))
      .def(
          "dispatch",
          [](Recorder& recorder, View x, View routes) {
            require(recorder.kind_of(x) == RowKind::tokens && routes.cols == 2 * recorder.recording()->top_k,
                    "dispatch: rows must be tokens, and routes what route made");
            nb::gil_scoped_release release;
            return recorder.dispatch(x, routes);
          },
          nb::arg("x"), nb::arg("routes"))
      .def(
          "experts",
          [](Recorder& recorder, View x, std::vector<std::shared_ptr<const Linear>> weights) {
            require(recorder.kind_of(x) == RowKind::routed, "experts: rows must be routed");
            require(static_cast<int32_t>(weights.size()) == recorder.recording()->num_experts &&
                        weights.front()->cols == x.cols,
                    "experts: one weight per expert is needed, with the input's columns");
            for (const std::shared_ptr<const Linear>& weight : weights)
              require(are_alike(*weight, *weights.front()), "experts: weights must be held alike");
            nb::gil_scoped_release release;
            return recorder.experts(x, std::move(weights));
          },
          nb::arg("x"), nb::arg("weights"))
      .def(
          "combine",
          [](Recorder& recorder, View x, View routes) {
            require(recorder.kind_of(x) == RowKind::routed && routes.cols == 2 * recorder.recording()->top_k,
                    "combine: rows must be routed, and routes what route made");
            nb::gil_scoped_release release;
            return recorder.combine(x, routes);
          },
          nb::arg("x"), nb::arg("routes"))
      .def(
          "seal",
          [](Recorder& recorder, std::optional<View> logits, std::optional<View> hidden) {
            require(!hidden || recorder.kind_of(*hidden) == RowKind::tokens, "seal: hidden states must be those of tokens");
            return recorder.seal(logits.value_or(View{}), hidden.value_or(View{}));
          },
          nb::arg("logits").none(), nb::arg("hidden").none(), "End the recording; the two can be read from its executor.");
}

}  // namespace

void bind_tape(nb::module_& module) {
  nb::class_<View>(module, "View").def_ro("cols", &View::cols).def(
      "slice",
      [](const View& view, int32_t first, int32_t cols) {
        require(first >= 0 && cols > 0 && first + cols <= view.cols, "slice outside the view");
        return View{view.buffer, view.column + first, cols};
      },
      nb::arg("first"), nb::arg("cols"));
  nb::enum_<IndexKind>(module, "IndexKind", "What an embedding looks its rows up by.")
      .value("token", IndexKind::token)
      .value("position", IndexKind::position)
      .value("zero", IndexKind::zero);
  nb::class_<AttentionLayer>(module, "AttentionLayer");
  module.def("attention_layer", &attention_layer, nb::arg("layer"), nb::arg("num_heads"), nb::arg("num_kv_heads"),
             nb::arg("head_dim"), nb::arg("scale"), nb::arg("window"), nb::arg("softcap"), nb::arg("causal"));
  nb::class_<StepArrays>(module, "StepArrays");
  module.def(
      "step_arrays",
      [](const KvCache& cache, int32_t rope_positions, const Array<int32_t, 1>& token_ids,
         const Array<int32_t, 1>& positions, const Array<int32_t, 1>& slots, const Array<int32_t, 1>& query_start,
         const Array<int32_t, 1>& first_position, const Array<int32_t, 2>& block_tables, const Array<int32_t, 1>& logit_rows) {
        const StepArrays step = check_step(token_ids, positions, slots, query_start, first_position, block_tables, logit_rows);
        check_cache_indices(step, cache, rope_positions);
        return step;
      },
      nb::arg("cache"), nb::arg("max_position"), nb::arg("token_ids"), nb::arg("positions"), nb::arg("slots"),
      nb::arg("query_start"), nb::arg("first_position"), nb::arg("block_tables"), nb::arg("logit_rows"),
      "Check a step's arrays; the result points into them.", nb::keep_alive<0, 3>(), nb::keep_alive<0, 4>(),
      nb::keep_alive<0, 5>(), nb::keep_alive<0, 6>(), nb::keep_alive<0, 7>(), nb::keep_alive<0, 8>(), nb::keep_alive<0, 9>());
  nb::class_<Executor::PhaseProfile>(module, "PhaseProfile", "What the phases of one label cost since profiling was switched on.")
      .def_ro("label", &Executor::PhaseProfile::label)
      .def_ro("runs", &Executor::PhaseProfile::runs)
      .def_ro("seconds", &Executor::PhaseProfile::seconds)
      .def_ro("macs", &Executor::PhaseProfile::macs)
      .def_ro("bytes", &Executor::PhaseProfile::bytes);
  nb::class_<Recording>(module, "Recording", "A forward pass as instructions, for steps of any size.")
      .def_prop_ro("num_instructions", [](const Recording& recording) { return recording.instructions.size(); })
      .def_prop_ro("num_phases", [](const Recording& recording) { return recording.phases.size(); });
  bind_recorder(module);
  nb::class_<Executor>(module, "Executor", "The memory of a recording, and its way through steps.")
      .def_static("create", &make_executor, nb::arg("pool"), nb::arg("isa"), nb::arg("cache"), nb::arg("recording"),
                  nb::arg("max_tokens"), nb::arg("max_logits"))
      .def(
          "run",
          [](Executor& executor, const StepArrays& step) {
            check_size(step, executor);
            require_range(step.token_ids, step.num_tokens, 0, executor.token_limit(), "token id");
            require_range(step.positions, step.num_tokens, 0, executor.position_limit(), "position");
            nb::gil_scoped_release release;
            executor.run(step);
          },
          nb::arg("step"))
      .def(
          "read_logits",
          [](nb::handle self, int32_t rows) {
            const Executor& executor = nb::cast<const Executor&>(self);
            return read_rows(executor, executor.recording().logits, rows, self);
          },
          nb::arg("rows"), "float32 [rows, vocabulary], a view of the executor's memory until the next step.")
      .def(
          "read_hidden",
          [](nb::handle self, int32_t rows) {
            const Executor& executor = nb::cast<const Executor&>(self);
            return read_rows(executor, executor.recording().hidden, rows, self);
          },
          nb::arg("rows"), "float32 [rows, hidden size], a view of the executor's memory until the next step.")
      .def("set_profiling", &Executor::set_profiling, nb::arg("on"), "Start counting afresh, or stop.")
      .def("profile", &Executor::profile)
      .def_prop_ro("buffer_bytes", &Executor::buffer_bytes);
  nb::class_<Immediate>(module, "Immediate", "Runs each instruction when it is emitted.")
      .def_static("create", &make_immediate, nb::arg("pool"), nb::arg("isa"), nb::arg("cache"), nb::arg("max_tokens"),
                  nb::arg("max_logits"))
      .def_prop_ro("recorder", &Immediate::recorder, nb::rv_policy::reference_internal)
      .def(
          "begin",
          [](Immediate& immediate, const StepArrays& step) {
            check_size(step, immediate.executor());
            immediate.begin(step);
          },
          nb::arg("step"))
      .def(
          "read",
          [](nb::handle self, View view, int32_t rows) {
            return read_rows(nb::cast<Immediate&>(self).executor(), view, rows, self);
          },
          nb::arg("view"), nb::arg("rows"), "float32 [rows, view.cols], memory of the view until the next step.");
}

}  // namespace octavo
