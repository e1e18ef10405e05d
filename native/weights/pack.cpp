#include "weights/pack.h"

#include <atomic>
#include <algorithm>
#include <cstring>
#include <vector>

#include "weights/decode.h"
#include "weights/half.h"
#include "weights/quantise_weights.h"

namespace octavo {
namespace {

constexpr int32_t kPanelsPerTask = 4;
constexpr int32_t kTile = 16;   // columns

int32_t panels_of(int32_t rows) { return (rows + kPanel - 1) / kPanel; }

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

bool is_finite(float value) { return (float_to_bits(value) & 0x7f800000u) != 0x7f800000u; }
bool is_finite(F16 value) { return (value.bits & 0x7c00u) != 0x7c00u; }
bool is_finite(Bf16 value) { return (value.bits & 0x7f80u) != 0x7f80u; }

// Hands out tasks of a few panels to all members; pack(first_panel, last_panel) returns false when it met a non-finite value.
template <class PackPanels>
void for_panels(int32_t panels, ThreadPool& pool, bool* finite, const PackPanels& pack) {
  std::atomic<int32_t> next{0};
  std::atomic<bool> good{true};
  pool.run([&](int) {
    for (;;) {
      const int32_t first = next.fetch_add(kPanelsPerTask);
      if (first >= panels) return;
      if (!pack(first, std::min(first + kPanelsPerTask, panels))) good.store(false);
    }
  });
  if (!good.load()) *finite = false;
}

// One row of floats as float32 [cols].
void load_row(const uint8_t* row, int32_t cols, FloatType type, float* values) {
  if (type == FloatType::f32) {
    std::memcpy(values, row, 4 * static_cast<size_t>(cols));
    return;
  }
  for (int32_t c = 0; c < cols; ++c) {
    uint16_t half;
    std::memcpy(&half, row + 2 * static_cast<int64_t>(c), 2);
    values[c] = type == FloatType::f16 ? f16_to_float(half) : bf16_to_float(half);
  }
}

// Sixteen rows [cols], `stride` values apart, into the panel order of kernels/table.h; in tiles of 16 columns, which stay in L1.
template <class T>
void store_panel(const T* rows, int64_t stride, int32_t cols, T* out) {
  for (int32_t first = 0; first < cols; first += kTile) {
    const int32_t width = std::min(kTile, cols - first);
    for (int32_t lane = 0; lane < kPanel; ++lane) {
      const T* row = rows + lane * stride + first;
      T* to = out + static_cast<int64_t>(first) * kPanel + lane;
      for (int32_t c = 0; c < width; ++c) to[c * kPanel] = row[c];
    }
  }
}

// A row of values as T; true when all of them are finite there.
template <class T, class Convert>
bool convert_row(const float* values, int32_t cols, T* out, const Convert& convert) {
  bool finite = true;
  for (int32_t c = 0; c < cols; ++c) {
    out[c] = convert(values[c]);
    finite &= is_finite(out[c]);
  }
  return finite;
}

const uint8_t* source_row(const SourceRows& source, int32_t row) {
  const int64_t stored = source.row_order != nullptr ? source.row_order[row] : row;
  return source.data + stored * source.row_bytes;
}

// The panels of a float part whose values are stored as T.
template <class T, class ReadRow, class Convert>
void pack_panels(const SourceRows& source, T* out, ThreadPool& pool, bool* finite, const ReadRow& read_row, const Convert& convert) {
  for_panels(panels_of(source.rows), pool, finite, [&](int32_t first, int32_t last) {
    std::vector<float> values(source.cols);
    std::vector<T> rows(static_cast<size_t>(kPanel) * source.cols);
    bool good = true;
    for (int32_t panel = first; panel < last; ++panel) {
      const int32_t lanes = std::min(kPanel, source.rows - panel * kPanel);
      if (lanes < kPanel) std::fill(rows.begin(), rows.end(), T{});
      for (int32_t lane = 0; lane < lanes; ++lane) {
        read_row(source_row(source, panel * kPanel + lane), values.data());
        good &= convert_row(values.data(), source.cols, rows.data() + static_cast<int64_t>(lane) * source.cols, convert);
      }
      store_panel(rows.data(), source.cols, source.cols, out + static_cast<int64_t>(panel) * kPanel * source.cols);
    }
    return good;
  });
}

// A part of float kind; read_row(stored row, values [cols]) gives a row's values.
template <class ReadRow>
Part pack_values(const SourceRows& source, WeightKind kind, ThreadPool& pool, bool* finite, const ReadRow& read_row) {
  Part part;
  PackedMatrix& matrix = part.matrix;
  matrix.kind = kind;
  matrix.rows = source.rows;
  matrix.cols = source.cols;
  matrix.panels = panels_of(source.rows);
  const size_t values = static_cast<size_t>(matrix.panels) * kPanel * source.cols;
  part.data = Block(values * (kind == WeightKind::f32 ? 4 : 2));
  matrix.data = part.data.as<void>();
  if (kind == WeightKind::f32)
    pack_panels(source, part.data.as<float>(), pool, finite, read_row, [](float value) { return value; });
  else if (kind == WeightKind::f16)
    pack_panels(source, part.data.as<F16>(), pool, finite, read_row, [](float value) { return F16{float_to_f16(value)}; });
  else
    pack_panels(source, part.data.as<Bf16>(), pool, finite, read_row, [](float value) { return Bf16{float_to_bf16(value)}; });
  return part;
}

// An empty part with memory for codes of `bits` bits and their scales.
Part make_code_part(int32_t rows, int32_t cols, const CodeLayout& layout) {
  Part part;
  PackedMatrix& matrix = part.matrix;
  matrix.kind = layout.kind;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.panels = panels_of(rows);
  matrix.group = layout.group;
  matrix.zero_point = layout.zero_point;
  matrix.scale_kind = layout.scale_kind;
  const size_t values = static_cast<size_t>(matrix.panels) * kPanel * cols;
  const size_t table_bytes = static_cast<size_t>(matrix.panels) * static_cast<size_t>(scale_bytes(matrix));
  part.data = Block(layout.kind == WeightKind::q4 ? values / 2 : values);
  part.scales = Block(table_bytes);
  matrix.data = part.data.as<void>();
  matrix.scales = part.scales.as<void>();
  if (layout.has_min) {
    part.mins = Block(table_bytes);
    matrix.mins = part.mins.as<void>();
  }
  return part;
}

void store_code_row(const PackedMatrix& matrix, int32_t panel, int32_t lane, const uint8_t* codes) {
  const int64_t cols = matrix.cols;
  if (matrix.kind != WeightKind::q4) {
    uint8_t* out = static_cast<uint8_t*>(const_cast<void*>(matrix.data)) + panel * cols * kPanel + lane * 4;
    for (int64_t c = 0; c < cols; c += 4) std::memcpy(out + c * kPanel, codes + c, 4);
    return;
  }
  uint8_t* out = static_cast<uint8_t*>(const_cast<void*>(matrix.data)) + panel * cols * kPanel / 2 + lane * 4;
  for (int64_t c = 0; c < cols; c += 8) {
    uint32_t low, high;
    std::memcpy(&low, codes + c, 4);
    std::memcpy(&high, codes + c + 4, 4);
    const uint32_t both = low | (high << 4);
    std::memcpy(out + c * (kPanel / 2), &both, 4);
  }
}

bool store_scale_row(const PackedMatrix& matrix, const void* to, int32_t panel, int32_t lane, const float* values) {
  const int64_t groups = groups_of(matrix);
  bool finite = true;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t index = (panel * groups + g) * kPanel + lane;
    finite &= is_finite(values[g]);
    if (matrix.scale_kind == ScaleKind::f16) static_cast<uint16_t*>(const_cast<void*>(to))[index] = float_to_f16(values[g]);
    else static_cast<float*>(const_cast<void*>(to))[index] = values[g];
  }
  return finite;
}

// A k-quant's units and steps of one row, as the file has them; table is of the scales or of the minimums.
void store_step_row(const PackedMatrix& matrix, const void* table, int32_t panel, int32_t lane, int32_t block, uint16_t unit,
                    const int8_t* steps) {
  const int32_t groups = kScaleSpan / matrix.group;
  uint8_t* units = static_cast<uint8_t*>(const_cast<void*>(table)) + panel * scale_bytes(matrix) +
                   int64_t{block} * kPanel * (2 + groups);
  std::memcpy(units + 2 * lane, &unit, 2);
  for (int32_t g = 0; g < groups; ++g) units[2 * kPanel + g * kPanel + lane] = static_cast<uint8_t>(steps[g]);
}

// The scales and minimums of row `row`, whose blocks lie at `source`.
bool store_block_scales(const PackedMatrix& matrix, int32_t row, BlockFormat format, const uint8_t* source) {
  bool finite = true;
  for (int32_t block = 0; block < matrix.cols / kScaleSpan; ++block) {
    const BlockScales found = block_scales(format, source + int64_t{block} * block_bytes(format));
    finite &= is_finite(F16{found.unit}) && is_finite(F16{found.min_unit});
    store_step_row(matrix, matrix.scales, row / kPanel, row % kPanel, block, found.unit, found.steps);
    if (matrix.mins != nullptr)
      store_step_row(matrix, matrix.mins, row / kPanel, row % kPanel, block, found.min_unit, found.min_steps);
  }
  return finite;
}

bool store_row(const PackedMatrix& matrix, int32_t row, const uint8_t* codes, const float* scales, const float* mins) {
  const int32_t panel = row / kPanel, lane = row % kPanel;
  store_code_row(matrix, panel, lane, codes);
  bool finite = store_scale_row(matrix, matrix.scales, panel, lane, scales);
  if (matrix.mins != nullptr) finite &= store_scale_row(matrix, matrix.mins, panel, lane, mins);
  return finite;
}

// scale * (code - zero_point) + min of one group, two roundings; without a min nothing is added (0 would turn -0 into 0).
void widen_group(const uint8_t* codes, const CodeLayout& layout, float scale, float min, float* values) {
  for (int32_t i = 0; i < layout.group; ++i) values[i] = scale * static_cast<float>(codes[i] - layout.zero_point);
  if (!layout.has_min) return;
  for (int32_t i = 0; i < layout.group; ++i) values[i] += min;
}

// Values as `kind` holds them, widened again; true when all of them are finite.
bool round_row(WeightKind kind, int32_t cols, float* values) {
  if (kind == WeightKind::f16)
    return convert_row(values, cols, values, [](float value) { return f16_to_float(float_to_f16(value)); });
  if (kind == WeightKind::bf16)
    return convert_row(values, cols, values, [](float value) { return bf16_to_float(float_to_bf16(value)); });
  return convert_row(values, cols, values, [](float value) { return value; });
}

// The codes that float values are rounded to.
CodeLayout layout_of(const FloatStorage& storage, int32_t cols) {
  switch (*storage.codes) {
    case WeightKind::q4: return {WeightKind::q4, storage.group, 0, ScaleKind::f16, true};
    case WeightKind::w8a8: return {WeightKind::w8a8, cols, 128, ScaleKind::f32, false};
    default: return {WeightKind::q8, storage.group, 128, ScaleKind::f16, false};
  }
}

// A part of codes made of float rows; read_row as for pack_values.
template <class ReadRow>
Part pack_rounded(const SourceRows& source, const FloatStorage& storage, ThreadPool& pool, bool* finite, const ReadRow& read_row) {
  const CodeLayout layout = layout_of(storage, source.cols);
  Part part = make_code_part(source.rows, source.cols, layout);
  for_panels(part.matrix.panels, pool, finite, [&](int32_t first, int32_t last) {
    const int32_t groups = groups_of(part.matrix);
    std::vector<float> values(source.cols), scales(groups), mins(groups);
    std::vector<uint8_t> codes(source.cols);
    bool good = true;
    for (int32_t row = first * kPanel; row < std::min(last * kPanel, source.rows); ++row) {
      read_row(source_row(source, row), values.data());
      good &= round_row(storage.kind, source.cols, values.data());
      quantise_row(values.data(), source.cols, layout, codes.data(), scales.data(), mins.data());
      good &= store_row(part.matrix, row, codes.data(), scales.data(), mins.data());
    }
    return good;
  });
  return part;
}

template <class ReadRow>
Part pack_rows(const SourceRows& source, const FloatStorage& storage, ThreadPool& pool, bool* finite, const ReadRow& read_row) {
  if (storage.codes) return pack_rounded(source, storage, pool, finite, read_row);
  return pack_values(source, storage.kind, pool, finite, read_row);
}

}  // namespace

Part pack_float(const SourceRows& source, FloatType type, const FloatStorage& storage, ThreadPool& pool, bool* finite) {
  return pack_rows(source, storage, pool, finite,
                   [&](const uint8_t* row, float* values) { load_row(row, source.cols, type, values); });
}

Part pack_blocks_as_float(const SourceRows& source, BlockFormat format, const FloatStorage& storage, ThreadPool& pool,
                          bool* finite) {
  const CodeLayout layout = layout_of(format);
  return pack_rows(source, storage, pool, finite, [&](const uint8_t* row, float* values) {
    std::vector<uint8_t> codes(source.cols);
    std::vector<float> scales(source.cols / layout.group), mins(source.cols / layout.group);
    decode_row(format, row, source.cols, codes.data(), scales.data(), mins.data());
    for (int32_t g = 0; g < source.cols / layout.group; ++g)
      widen_group(codes.data() + g * layout.group, layout, scales[g], layout.has_min ? mins[g] : 0.0f, values + g * layout.group);
  });
}

Part pack_blocks(const SourceRows& source, BlockFormat format, ThreadPool& pool, bool* finite) {
  const CodeLayout layout = layout_of(format);
  Part part = make_code_part(source.rows, source.cols, layout);
  for_panels(part.matrix.panels, pool, finite, [&](int32_t first, int32_t last) {
    std::vector<uint8_t> codes(source.cols);
    std::vector<float> scales(source.cols / layout.group), mins(source.cols / layout.group);
    bool good = true;
    for (int32_t row = first * kPanel; row < std::min(last * kPanel, source.rows); ++row) {
      const uint8_t* const stored = source_row(source, row);
      decode_row(format, stored, source.cols, codes.data(), scales.data(), mins.data());
      if (layout.scale_kind == ScaleKind::steps) {
        store_code_row(part.matrix, row / kPanel, row % kPanel, codes.data());
        good &= store_block_scales(part.matrix, row, format, stored);
      } else {
        good &= store_row(part.matrix, row, codes.data(), scales.data(), mins.data());
      }
    }
    return good;
  });
  return part;
}

Part pack_codes(const CodeRows& source, ThreadPool& pool, bool* finite) {
  const CodeLayout layout{source.bits == 4 ? WeightKind::q4 : WeightKind::q8, source.group, source.zero_point,
                          source.scale_f16 ? ScaleKind::f16 : ScaleKind::f32,
                          source.mins != nullptr};
  Part part = make_code_part(source.rows, source.cols, layout);
  const int64_t groups = groups_of(part.matrix);
  for_panels(part.matrix.panels, pool, finite, [&](int32_t first, int32_t last) {
    bool good = true;
    for (int32_t row = first * kPanel; row < std::min(last * kPanel, source.rows); ++row) {
      const float* mins = source.mins != nullptr ? source.mins + row * groups : nullptr;
      good &= store_row(part.matrix, row, source.codes + static_cast<int64_t>(row) * source.cols,
                        source.scales + row * groups, mins);
    }
    return good;
  });
  return part;
}

void set_bias(Part& part, const float* bias) {
  part.bias = Block(static_cast<size_t>(part.matrix.panels) * kPanel * sizeof(float));
  std::memcpy(part.bias.as<float>(), bias, part.matrix.rows * sizeof(float));
  part.matrix.bias = part.bias.as<float>();
}

}  // namespace octavo
