// Rows of a packed table, dequantised: out = scale_arg * (scale * (code - zero_point) + min), each step rounded on its own.

// The scale or minimum of group g of one output of a panel.
OCTAVO_INLINE float table_entry(const PackedMatrix& w, const void* tables, int64_t panel, int lane, int g) {
  const uint8_t* table = static_cast<const uint8_t*>(tables) + panel * scale_bytes(w);
  const int at = g * kPanel + lane;
  if (w.scale_kind == ScaleKind::f32) return reinterpret_cast<const float*>(table)[at];
  if (w.scale_kind == ScaleKind::f16) return half_to_float(reinterpret_cast<const uint16_t*>(table)[at]);
  const int groups = kScaleSpan / w.group;
  const uint8_t* units = table + static_cast<int64_t>(g / groups) * kPanel * (2 + groups);
  const int8_t* steps = reinterpret_cast<const int8_t*>(units + 2 * kPanel);
  return half_to_float(reinterpret_cast<const uint16_t*>(units)[lane]) * static_cast<float>(steps[g % groups * kPanel + lane]);
}

OCTAVO_INLINE int code_at(const PackedMatrix& w, int64_t panel, int lane, int col) {
  const uint8_t* data = static_cast<const uint8_t*>(w.data);
  if (w.kind != WeightKind::q4) {
    return data[panel * w.cols * kPanel + (col / 4 * kPanel + lane) * 4 + col % 4];
  }
  const uint8_t both = data[panel * w.cols * kPanel / 2 + col / 8 * 64 + lane * 4 + col % 4];
  return col % 8 < 4 ? both & 15 : both >> 4;
}

void embed_quant(const PackedMatrix& w, int32_t id, float scale, float* out) {
  const int64_t panel = id / kPanel;
  const int lane = id % kPanel;
  const int groups = groups_of(w);
  for (int g = 0; g < groups; ++g) {
    const float step = table_entry(w, w.scales, panel, lane, g);
    const float min = w.mins ? table_entry(w, w.mins, panel, lane, g) : 0.0f;
    const int end = (g + 1) * w.group < w.cols ? (g + 1) * w.group : w.cols;
    for (int col = g * w.group; col < end; ++col) {
      const float value = step * static_cast<float>(code_at(w, panel, lane, col) - w.zero_point) + min;
      out[col] = value * scale;
    }
  }
}

void embed_float(const PackedMatrix& w, int32_t id, float scale, float* out) {
  const int64_t first = static_cast<int64_t>(id / kPanel) * w.cols * kPanel + id % kPanel;
  for (int64_t col = 0; col < w.cols; ++col) {
    const int64_t at = first + col * kPanel;
    float value;
    if (w.kind == WeightKind::f32) {
      value = static_cast<const float*>(w.data)[at];
    } else {
      const uint16_t bits = static_cast<const uint16_t*>(w.data)[at];
      value = w.kind == WeightKind::f16 ? half_to_float(bits) : bf16_to_float(bits);
    }
    out[col] = value * scale;
  }
}

void embedding(const EmbeddingArgs& args) {
  const PackedMatrix& w = *args.table;
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    float* out = args.out + row * args.ldout;
    if (has_codes(w.kind)) {
      embed_quant(w, args.ids[row], args.scale, out);
    } else {
      embed_float(w, args.ids[row], args.scale, out);
    }
  }
}
