// Storing keys and values in the paged cache (Kwon et al., 2023). Included inside the namespace of an ISA unit, after simd.
#include "kv_cache.h"

template <typename Kv>
void kv_write_row(const KvWriteArgs& args, int64_t row) {
  using Element = typename Kv::Element;
  const int64_t block = args.slots[row] / args.block_size;
  const int64_t offset = args.slots[row] % args.block_size;
  const int64_t dim = args.head_dim;
  for (int64_t head = 0; head < args.num_kv_heads; ++head) {
    const int64_t base = (block * args.num_kv_heads + head) * args.block_size * dim;
    Element* const key_column = static_cast<Element*>(args.k_cache) + base + offset;
    Element* const value_row = static_cast<Element*>(args.v_cache) + base + offset * dim;
    const float* const k = args.k + row * args.ldk + head * dim;
    const float* const v = args.v + row * args.ldv + head * dim;
    for (int64_t i = 0; i < dim; i += 16) {
      const int32_t n = dim - i < 16 ? static_cast<int32_t>(dim - i) : 16;
      Element keys[16], values[16];
      Kv::store16(keys, load_n(k + i, n));
      Kv::store16(values, load_n(v + i, n));
      for (int32_t lane = 0; lane < n; ++lane) {
        key_column[(i + lane) * args.block_size] = keys[lane];
        value_row[i + lane] = values[lane];
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
  }
}
