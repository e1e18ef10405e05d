#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>
#include <optional>

#include "bindings/arrays.h"
#include "weights/pack.h"

namespace octavo {
namespace {

using RowOrder = std::optional<Array<int32_t, 1>>;

SourceRows source_rows(const Array<uint8_t, 2>& data, const RowOrder& row_order, int32_t cols) {
  const int32_t rows = static_cast<int32_t>(data.shape(0));
  if (row_order) {
    require(row_order->shape(0) == data.shape(0), "row_order must have one entry per row");
    require_range(row_order->data(), row_order->shape(0), 0, rows, "row_order entry");
  }
  return {data.data(), static_cast<int64_t>(data.shape(1)), row_order ? row_order->data() : nullptr, rows, cols};
}

bool is_float(WeightKind kind) { return kind == WeightKind::f32 || kind == WeightKind::f16 || kind == WeightKind::bf16; }

// Appends the part unless a value was not finite.
bool append(Linear& linear, Part part, bool finite) {
  require(linear.parts.empty() || linear.cols == part.matrix.cols, "all parts of a weight need the same number of columns");
  for (const Part& other : linear.parts)
    require(!part.is_quantised() || !other.is_quantised() || activation_group(part.matrix) == activation_group(other.matrix),
            "all parts of a weight must take activations rounded alike");
  if (finite) linear.append(std::move(part));
  return finite;
}

void require_storage(const FloatStorage& storage, int32_t cols) {
  require(is_float(storage.kind), "kind must be a float kind");
  if (!storage.codes) return;
  require(has_codes(*storage.codes), "codes must be q8, q4 or w8a8");
  require(storage.group == 32 || storage.group == 64 || storage.group == 128, "group must be 32, 64 or 128");
  require(cols % kActGroup == 0, "columns must be a multiple of 32");
  require(*storage.codes != WeightKind::w8a8 || cols <= kMaxChannelCols, "w8a8 takes at most 65536 columns");
}

bool append_float(Linear& linear, ThreadPool& pool, const Array<uint8_t, 2>& data, const RowOrder& row_order, int32_t cols,
                  FloatType type, WeightKind kind, std::optional<WeightKind> codes, int32_t group) {
  const int64_t width = type == FloatType::f32 ? 4 : 2;
  require(cols > 0 && static_cast<int64_t>(data.shape(1)) == cols * width, "row bytes do not match the columns");
  require_storage({kind, codes, group}, cols);
  const SourceRows source = source_rows(data, row_order, cols);
  bool finite = true;
  nb::gil_scoped_release release;
  Part part = pack_float(source, type, {kind, codes, group}, pool, &finite);
  return append(linear, std::move(part), finite);
}

bool append_blocks(Linear& linear, ThreadPool& pool, const Array<uint8_t, 2>& data, const RowOrder& row_order, int32_t cols,
                   BlockFormat format, std::optional<WeightKind> as_kind, std::optional<WeightKind> codes, int32_t group) {
  require(as_kind || !codes, "codes are made of values: give as_kind, too");
  if (as_kind) require_storage({*as_kind, codes, group}, cols);
  const int32_t width = block_columns(format);
  require(cols > 0 && cols % width == 0, "columns must be a multiple of the block width");
  require(static_cast<int64_t>(data.shape(1)) == static_cast<int64_t>(cols / width) * block_bytes(format),
          "row bytes do not match the columns");
  const SourceRows source = source_rows(data, row_order, cols);
  bool finite = true;
  nb::gil_scoped_release release;
  Part part = as_kind ? pack_blocks_as_float(source, format, {*as_kind, codes, group}, pool, &finite)
                      : pack_blocks(source, format, pool, &finite);
  return append(linear, std::move(part), finite);
}

bool append_codes(Linear& linear, ThreadPool& pool, const Array<uint8_t, 2>& codes, const Array<float, 2>& scales,
                  const std::optional<Array<float, 2>>& mins, int32_t bits, int32_t group, int32_t zero_point, bool scale_f16) {
  const int32_t rows = static_cast<int32_t>(codes.shape(0)), cols = static_cast<int32_t>(codes.shape(1));
  require(bits == 4 || bits == 8, "bits must be 4 or 8");
  require(group == 16 || group == 32 || group == 64 || group == 128, "group must be 16, 32, 64 or 128");
  require(cols > 0 && cols % kActGroup == 0, "columns must be a multiple of 32");
  const auto fits = [&](const Array<float, 2>& a) {
    return static_cast<int32_t>(a.shape(0)) == rows && static_cast<int32_t>(a.shape(1)) == (cols + group - 1) / group;
  };
  require(fits(scales) && (!mins || fits(*mins)), "scales and mins must be [rows, groups]");
  require(!mins || zero_point == 0, "a zero point beside minimums belongs into them");
  bool finite = true;
  nb::gil_scoped_release release;
  Part part = pack_codes({codes.data(), scales.data(), mins ? mins->data() : nullptr, rows, cols, bits, group, zero_point,
                          scale_f16},
                         pool, &finite);
  return append(linear, std::move(part), finite);
}

void bind_enums(nb::module_& module) {
  nb::enum_<WeightKind>(module, "WeightKind")
      .value("f32", WeightKind::f32)
      .value("f16", WeightKind::f16)
      .value("bf16", WeightKind::bf16)
      .value("q8", WeightKind::q8)
      .value("q4", WeightKind::q4)
      .value("w8a8", WeightKind::w8a8);
  nb::enum_<FloatType>(module, "FloatType")
      .value("f32", FloatType::f32)
      .value("f16", FloatType::f16)
      .value("bf16", FloatType::bf16);
  nb::enum_<BlockFormat>(module, "BlockFormat")
      .value("q8_0", BlockFormat::q8_0)
      .value("q4_0", BlockFormat::q4_0)
      .value("q4_1", BlockFormat::q4_1)
      .value("q5_0", BlockFormat::q5_0)
      .value("q5_1", BlockFormat::q5_1)
      .value("q4_k", BlockFormat::q4_k)
      .value("q5_k", BlockFormat::q5_k)
      .value("q6_k", BlockFormat::q6_k);
}

std::shared_ptr<Vector> make_vector(const Array<float, 1>& values) {
  auto vector = std::make_shared<Vector>();
  vector->size = static_cast<int32_t>(values.shape(0));
  vector->data = Block(values.shape(0) * sizeof(float));
  std::memcpy(vector->data.as<float>(), values.data(), values.shape(0) * sizeof(float));
  return vector;
}

std::shared_ptr<RopeTable> make_rope_table(const Array<float, 2>& cos, const Array<float, 2>& sin) {
  require(cos.shape(0) == sin.shape(0) && cos.shape(1) == sin.shape(1), "cos and sin must have one shape");
  auto table = std::make_shared<RopeTable>();
  table->positions = static_cast<int32_t>(cos.shape(0));
  table->half = static_cast<int32_t>(cos.shape(1));
  const size_t bytes = cos.size() * sizeof(float);
  table->cos = Block(bytes);
  table->sin = Block(bytes);
  std::memcpy(table->cos.as<float>(), cos.data(), bytes);
  std::memcpy(table->sin.as<float>(), sin.data(), bytes);
  return table;
}

}  // namespace

void bind_weights(nb::module_& module) {
  bind_enums(module);
  nb::class_<Linear>(module, "Linear", "A linear weight in panels; its outputs are those of its parts one after the other.")
      .def(nb::init<>())
      .def_prop_ro("rows", [](const Linear& linear) { return linear.rows; })
      .def_prop_ro("cols", [](const Linear& linear) { return linear.cols; })
      .def_prop_ro("bytes", &Linear::bytes)
      .def("append_float", &append_float, nb::arg("pool"), nb::arg("data"), nb::arg("row_order").none(), nb::arg("cols"),
           nb::arg("type"), nb::arg("kind"), nb::arg("codes").none() = nb::none(), nb::arg("group") = kActGroup,
           "Append rows of float32, float16 or bfloat16, rounded to kind and then, if given, to codes: q8 or q4 in groups "
           "of columns, or w8a8; False if a value is not finite.")
      .def("append_blocks", &append_blocks, nb::arg("pool"), nb::arg("data"), nb::arg("row_order").none(), nb::arg("cols"),
           nb::arg("format"), nb::arg("as_kind").none(), nb::arg("codes").none() = nb::none(), nb::arg("group") = kActGroup,
           "Append rows of GGUF blocks, kept to the bit, or widened to a float kind and held as append_float does; False if a scale "
           "is not finite.")
      .def("append_codes", &append_codes, nb::arg("pool"), nb::arg("codes"), nb::arg("scales"), nb::arg("mins").none(),
           nb::arg("bits"), nb::arg("group"), nb::arg("zero_point"), nb::arg("scale_f16"),
           "Append unpacked codes with group scales; False if a scale is not finite.")
      .def(
          "set_column_order",
          [](Linear& linear, const Array<int32_t, 1>& order) {
            require(static_cast<int32_t>(order.shape(0)) == linear.cols, "column_order must have one entry per column");
            require_range(order.data(), order.shape(0), 0, linear.cols, "column_order entry");
            linear.column_order.assign(order.data(), order.data() + order.shape(0));
          },
          nb::arg("order"), "Column i of the codes of all parts belongs to column order[i] of the input.")
      .def(
          "set_bias",
          [](Linear& linear, const Array<float, 1>& bias) {
            require(!linear.parts.empty(), "append a part first");
            require(static_cast<int32_t>(bias.shape(0)) == linear.parts.back().matrix.rows, "bias must have one entry per row");
            set_bias(linear.parts.back(), bias.data());
          },
          nb::arg("bias"), "Give the last part a bias.");
  nb::class_<Vector>(module, "Vector")
      .def_prop_ro("size", [](const Vector& vector) { return vector.size; });
  nb::class_<RopeTable>(module, "RopeTable");
  module.def("make_vector", &make_vector, nb::arg("values"));
  module.def("make_rope_table", &make_rope_table, nb::arg("cos"), nb::arg("sin"), "cos, sin: float32 [positions, rotary_dim / 2].");
}

}  // namespace octavo
