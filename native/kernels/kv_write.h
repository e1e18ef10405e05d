// Storing keys and values in the paged cache (Kwon et al., 2023). Included inside the namespace of an ISA unit, after simd.
#include "kv_cache.h"

struct VectorScale {
  float scale, inverse;  // x = scale * code, code = round(x * inverse)
};

// Scale of one key or value, by the rule of quantise.h. A NaN or an infinity makes the scale NaN, so that it shows in whatever
// reads the vector, as in the float caches.
inline VectorScale vector_scale(const float* x, int64_t dim) {
  F16x largest = zero(), poison = zero();
  for (int64_t i = 0; i < dim; i += 16) {
    const F16x part = load_n(x + i, dim - i < 16 ? static_cast<int>(dim - i) : 16);
    largest = max(abs(part), largest);
    poison = add(poison, mul(part, zero()));
  }
  const float amax = reduce_max(largest);
  const bool live = !(amax < kTinyGroup);
  return {(live ? amax / 127.0f : 0.0f) + reduce_add(poison), live ? 127.0f / amax : 0.0f};
}

template <typename Kv>
void kv_write_row(const KvWriteArgs& args, int64_t row) {
  using Element = typename Kv::Element;
  constexpr bool kScaled = Kv::kScaleElements > 0;
  const int64_t block = args.slots[row] / args.block_size;
  const int64_t offset = args.slots[row] % args.block_size;
  const int64_t dim = args.head_dim;
  for (int64_t head = 0; head < args.num_kv_heads; ++head) {
    const int64_t base = head_offset<Kv>(args, block, head);
    Element* const keys = static_cast<Element*>(args.k_cache) + base;
    Element* const values = static_cast<Element*>(args.v_cache) + base;
    const float* const k = args.k + row * args.ldk + head * dim;
    const float* const v = args.v + row * args.ldv + head * dim;
    VectorScale key_scale{}, value_scale{};
    if (kScaled) {
      key_scale = vector_scale(k, dim);
      value_scale = vector_scale(v, dim);
      const int64_t at = args.block_size * dim + offset * Kv::kScaleElements;
      __builtin_memcpy(keys + at, &key_scale.scale, sizeof(float));
      __builtin_memcpy(values + at, &value_scale.scale, sizeof(float));
    }
    for (int64_t i = 0; i < dim; i += 16) {
      const int32_t n = dim - i < 16 ? static_cast<int32_t>(dim - i) : 16;
      F16x key = load_n(k + i, n), value = load_n(v + i, n);
      if (kScaled) {
        key = mul(key, broadcast(key_scale.inverse));
        value = mul(value, broadcast(value_scale.inverse));
      }
      Element key_part[16], value_part[16];
      Kv::store16(key_part, key);
      Kv::store16(value_part, value);
      for (int32_t lane = 0; lane < n; ++lane) {
        keys[(i + lane) * args.block_size + offset] = key_part[lane];
        values[offset * dim + i + lane] = value_part[lane];
      }
    }
  }
}

template <typename Kv>
void kv_write_rows(const KvWriteArgs& args) {
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    kv_write_row<Kv>(args, row);
  }
}

void kv_write(const KvWriteArgs& args) {
  switch (args.kv_kind) {
    case KvKind::f32:
      return kv_write_rows<KvF32>(args);
    case KvKind::f16:
      return kv_write_rows<KvF16>(args);
    case KvKind::bf16:
      return kv_write_rows<KvBf16>(args);
    case KvKind::i8:
      return kv_write_rows<KvI8>(args);
  }
}
