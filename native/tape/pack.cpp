#include "tape/pack.h"

#include <atomic>
#include <cmath>
#include <algorithm>
#include <cstring>
#include <vector>

#include "tape/decode.h"
#include "tape/half.h"

namespace octavo {
namespace {

constexpr int32_t kPanelsPerTask = 4;

int32_t panels_of(int32_t rows) { return (rows + kPanel - 1) / kPanel; }

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

bool is_finite(float value) { return std::isfinite(value); }
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

// Sixteen rows, one after the other, into the panel order of kernels/table.h.
template <class T, class Convert>
bool store_panel(const float* rows, int32_t cols, T* out, const Convert& convert) {
  bool finite = true;
  for (int32_t c = 0; c < cols; ++c) {
    for (int32_t lane = 0; lane < kPanel; ++lane) {
      const T value = convert(rows[static_cast<int64_t>(lane) * cols + c]);
      finite &= is_finite(value);
      out[static_cast<int64_t>(c) * kPanel + lane] = value;
    }
  }
  return finite;
}

const uint8_t* source_row(const SourceRows& source, int32_t row) {
  const int64_t stored = source.row_order != nullptr ? source.row_order[row] : row;
  return source.data + stored * source.row_bytes;
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
  const int64_t panel_values = static_cast<int64_t>(kPanel) * source.cols;
  part.data = Block(static_cast<size_t>(matrix.panels * panel_values) * (kind == WeightKind::f32 ? 4 : 2));
  matrix.data = part.data.as<void>();
  for_panels(matrix.panels, pool, finite, [&](int32_t first, int32_t last) {
    std::vector<float> rows(panel_values);
    bool good = true;
    for (int32_t panel = first; panel < last; ++panel) {
      std::fill(rows.begin(), rows.end(), 0.0f);
      for (int32_t lane = 0; lane < std::min(kPanel, source.rows - panel * kPanel); ++lane)
        read_row(source_row(source, panel * kPanel + lane), rows.data() + static_cast<int64_t>(lane) * source.cols);
      const int64_t at = panel * panel_values;
      if (kind == WeightKind::f32)
        good &= store_panel(rows.data(), source.cols, part.data.as<float>() + at, [](float value) { return value; });
      else if (kind == WeightKind::f16)
        good &= store_panel(rows.data(), source.cols, part.data.as<F16>() + at, [](float value) { return F16{float_to_f16(value)}; });
      else
        good &= store_panel(rows.data(), source.cols, part.data.as<Bf16>() + at, [](float value) { return Bf16{float_to_bf16(value)}; });
    }
    return good;
  });
  return part;
}

// An empty part with memory for codes of `bits` bits and their scales.
Part make_code_part(int32_t rows, int32_t cols, const CodeLayout& layout) {
  Part part;
  PackedMatrix& matrix = part.matrix;
  matrix.kind = layout.bits == 4 ? WeightKind::q4 : WeightKind::q8;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.panels = panels_of(rows);
  matrix.group = layout.group;
  matrix.zero_point = layout.zero_point;
  matrix.scale_f16 = layout.scale_f16 ? 1 : 0;
  const size_t values = static_cast<size_t>(matrix.panels) * kPanel * cols;
  const size_t scale_bytes = values / layout.group * (layout.scale_f16 ? 2 : 4);
  part.data = Block(layout.bits == 4 ? values / 2 : values);
  part.scales = Block(scale_bytes);
  matrix.data = part.data.as<void>();
  matrix.scales = part.scales.as<void>();
  if (layout.has_min) {
    part.mins = Block(scale_bytes);
    matrix.mins = part.mins.as<void>();
  }
  return part;
}

void store_code_row(const PackedMatrix& matrix, int32_t panel, int32_t lane, const uint8_t* codes) {
  const int64_t cols = matrix.cols;
  if (matrix.kind == WeightKind::q8) {
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
  const int64_t groups = matrix.cols / matrix.group;
  bool finite = true;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t index = (panel * groups + g) * kPanel + lane;
    finite &= is_finite(values[g]);
    if (matrix.scale_f16) static_cast<uint16_t*>(const_cast<void*>(to))[index] = float_to_f16(values[g]);
    else static_cast<float*>(const_cast<void*>(to))[index] = values[g];
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

}  // namespace

Part pack_float(const SourceRows& source, FloatType type, WeightKind kind, ThreadPool& pool, bool* finite) {
  return pack_values(source, kind, pool, finite,
                     [&](const uint8_t* row, float* values) { load_row(row, source.cols, type, values); });
}

Part pack_blocks_as_float(const SourceRows& source, BlockFormat format, WeightKind kind, ThreadPool& pool, bool* finite) {
  const CodeLayout layout = layout_of(format);
  return pack_values(source, kind, pool, finite, [&](const uint8_t* row, float* values) {
    std::vector<uint8_t> codes(source.cols);
    std::vector<float> scales(source.cols / layout.group), mins(source.cols / layout.group);
    decode_row(format, row, source.cols, codes.data(), scales.data(), mins.data());
    for (int32_t c = 0; c < source.cols; ++c) {
      values[c] = scales[c / layout.group] * static_cast<float>(codes[c] - layout.zero_point);
      if (layout.has_min) values[c] += mins[c / layout.group];
    }
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
      decode_row(format, source_row(source, row), source.cols, codes.data(), scales.data(), mins.data());
      good &= store_row(part.matrix, row, codes.data(), scales.data(), mins.data());
    }
    return good;
  });
  return part;
}

Part pack_codes(const CodeRows& source, ThreadPool& pool, bool* finite) {
  const CodeLayout layout{source.bits, source.group, source.zero_point, source.scale_f16, source.mins != nullptr};
  Part part = make_code_part(source.rows, source.cols, layout);
  const int64_t groups = source.cols / source.group;
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
