// The contract between the executor and the kernels: plain argument structs and one table of function pointers per ISA.
//
// Every kernel computes each output row from its own input row alone (attention: from its own sequence alone), in one fixed
// order of operations, so that tile shape, row count and thread count cannot change a byte. Rows are processed in ranges
// that the executor hands out to threads.
#pragma once

#include <cstdint>

namespace octavo {

inline constexpr int kPanel = 16;         // outputs per weight panel
inline constexpr int kActGroup = 32;      // columns per activation scale
inline constexpr int kSumGroup = 16;      // columns per stored sum of activation codes
inline constexpr int kMaxChannelCols = 65536;   // w8a8: a sum over them is at most 128 * 127 * 65536, half of int32's range
inline constexpr int kKvSplit = 256;      // positions per attention split; partial results merge in split order
inline constexpr int kKvTile = 64;        // positions per online-softmax step, aligned to multiples of itself

enum class WeightKind : int32_t { f32 = 0, f16 = 1, bf16 = 2, q8 = 3, q4 = 4, w8a8 = 5 };
// How the scale or minimum of each group is kept; the float32 that it stands for is the same in all of them.
enum class ScaleKind : int32_t { f32 = 0, f16 = 1, steps = 2 };
inline constexpr int kScaleSpan = 256;    // columns whose groups share a unit, with ScaleKind::steps
enum class KvKind : int32_t { f32 = 0, f16 = 1, bf16 = 2, i8 = 3 };

// One part of a linear weight [rows, cols] in panels of 16 outputs; the last panel is padded with zeros.
//   f32, f16, bf16   data [panels][cols][16]
//   q8               data [panels][cols / 4][16][4] unsigned bytes: byte j of output o is column 4 * i + j
//   q4               data [panels][cols / 8][64] bytes: byte 4 * o + j holds column 8 * i + j (low nibble) and 8 * i + 4 + j (high)
//   w8a8             data as q8; one float32 scale per output (group = cols), no mins, zero_point 128; the products take
//                    activations rounded per row. cols is at most kMaxChannelCols.
//   scales, mins     mins null when the format has none
//     f32, f16       [panels][groups][16], groups = cols / group rounded up (the last one may be shorter)
//     steps          [panels][cols / 256] of: float16 units [16], then int8 steps [256 / group][16]; a value is unit * step, which
//                    is exact in float32. For k-quants, whose files have units and steps of 6 and 8 bits
// value = scale * (code - zero_point) + min. cols is a multiple of 32 for codes. All pointers are 64-byte aligned.
// Codes with an integer zero point z per group (AWQ, GPTQ) are held as min = -scale * z in float32 tables: a float16 scale
// times an integer up to 255 is exact there, and so is the sum; float16 tables would round the minimum.
struct PackedMatrix {
  WeightKind kind;
  int32_t rows;
  int32_t cols;
  int32_t panels;
  int32_t group;       // 16, 32, 64 or 128 (q8, q4), cols (w8a8)
  int32_t zero_point;
  ScaleKind scale_kind;
  const void* data;
  const void* scales;
  const void* mins;
  const float* bias;   // [panels * 16] or null
};

// static: an inline symbol of an ISA unit could be linked into another unit.
static inline int32_t groups_of(const PackedMatrix& w) { return (w.cols + w.group - 1) / w.group; }
// Bytes of the scales, and of the minimums, of one panel.
static inline int64_t scale_bytes(const PackedMatrix& w) {
  switch (w.scale_kind) {
    case ScaleKind::f32: return int64_t{4} * groups_of(w) * kPanel;
    case ScaleKind::f16: return int64_t{2} * groups_of(w) * kPanel;
    case ScaleKind::steps: break;
  }
  return int64_t{w.cols / kScaleSpan} * (2 * kPanel) + int64_t{groups_of(w)} * kPanel;
}
static inline bool has_codes(WeightKind kind) {
  return kind == WeightKind::q8 || kind == WeightKind::q4 || kind == WeightKind::w8a8;
}

// Bytes of the data of one panel.
static inline int64_t panel_bytes(const PackedMatrix& w) {
  switch (w.kind) {
    case WeightKind::f32: return int64_t{4} * w.cols * kPanel;
    case WeightKind::f16:
    case WeightKind::bf16: return int64_t{2} * w.cols * kPanel;
    case WeightKind::q4: return int64_t{w.cols} * kPanel / 2;
    case WeightKind::q8:
    case WeightKind::w8a8: break;
  }
  return int64_t{w.cols} * kPanel;
}

// Columns that share one scale in the activations which a matrix of codes is multiplied with; 0: the whole row.
static inline int32_t activation_group(const PackedMatrix& w) { return w.kind == WeightKind::w8a8 ? 0 : kActGroup; }

// Rows of activations rounded to int8: code = round(x / scale), scale = max|x| / 127 over each group of columns.
// Codes lie in -127..127. A group of zeros has scale 0.
struct QuantRows {
  int8_t* codes;    // [m][cols]
  float* scales;    // [m][cols / group], or [m] for whole rows
  int32_t* sums;    // sums of codes: [m][cols / 16] in groups, [m] for whole rows
  float* products;  // scale * sum of codes: [m][cols / 32]; not for whole rows
  int32_t cols;
  int32_t group;    // 32, or 0: whole rows
};

// out[r][o] = (residual[r][o] +) x[r] . w[o] + bias[o] for rows row_begin..row_end and panels panel_begin..panel_end.
// residual (may be null, may equal out) is added to the finished sum, out = residual + (x.w + bias), as a separate rounding.
struct GemmArgs {
  const PackedMatrix* weight;
  const float* x;            // [m, cols], stride ldx; float kinds
  const QuantRows* quant;    // quantised kinds
  float* out;                // column 0 of this part
  const float* residual;     // same shape as out, stride ldr
  int64_t ldx, ldout, ldr;   // in elements
  int32_t row_begin, row_end;
  int32_t panel_begin, panel_end;
};

// Positions begin..end of one KV head of a sequence, whose first tile is fetched while the tiles before it are computed.
struct NextAttention {
  const int32_t* block_table;   // null: nothing is known to follow
  int32_t kv_head, begin, end;
};

// Attention of the query rows of one sequence share for one KV head.
// Caches of one layer, block_stride bytes from block to block: k [kv_heads][head_dim][block_size] (keys transposed),
// v [kv_heads][block_size][head_dim]; i8 has scales besides, see kv_cache.h.
// Query row t (0..num_tokens-1) has position first_position + t and sees keys j <= position with position - j < window, or,
// with num_keys set, all keys j < num_keys.
// Tile t0..t1 of the rows is computed. Keys are visited in tiles of kKvTile positions aligned to their absolute position,
// grouped in splits of kKvSplit positions; a masked key contributes exactly nothing.
// A tile may also be computed piece by piece, on several threads: with partials set, attention computes splits
// split_begin..split_end only and leaves each one's result there; once all of the tile's splits are done, attention_merge
// folds them in order and writes the output, with the bytes of a tile computed at once.
struct AttentionArgs {
  const float* q;            // row of the share's first token, column of head 0; stride ldq
  float* out;                // same, stride ldo
  const void* k_cache;
  const void* v_cache;
  const int32_t* block_table;
  float* scratch;            // at least attention_scratch floats
  float* partials;           // attention_partial floats for each split from split_begin on; null: all splits, to the output
  int64_t ldq, ldo;
  int64_t block_stride;
  KvKind kv_kind;
  int32_t num_heads, num_kv_heads, head_dim, block_size;
  int32_t kv_head;
  int32_t first_position, t0, t1;   // with partials: t1 - t0 <= attention_tile
  int32_t split_begin, split_end;   // read with partials only
  int32_t window;            // 0: no window
  int32_t num_keys;          // 0: causal; else the positions that every row sees
  float scale;
  float softcap;             // 0: none
  NextAttention next;        // what this thread attends to afterwards
};

// Norm of each group of `cols` columns of rows [row_begin, row_end). rms_norm reads no bias.
struct NormArgs {
  const float* x;
  const float* weight;
  const float* bias;
  float* out;
  int64_t ldx, ldout;
  int32_t cols, groups;
  int32_t row_begin, row_end;
  float eps;
};

struct RopeArgs {            // rotates half-split pairs (i, i + rotary_dim / 2) of each head; x may equal out
  const float* x;
  float* out;
  const float* cos;          // [positions][rotary_dim / 2]
  const float* sin;
  const int32_t* positions;
  int64_t ldx, ldout;
  int32_t heads, head_dim, rotary_dim;
  int32_t row_begin, row_end;
};

struct KvWriteArgs {
  const float* k;
  const float* v;
  void* k_cache;
  void* v_cache;
  const int32_t* slots;      // block * block_size + offset
  int64_t ldk, ldv;
  int64_t block_stride;      // bytes
  KvKind kv_kind;
  int32_t num_kv_heads, head_dim, block_size;
  int32_t row_begin, row_end;
};

struct EmbeddingArgs {       // out[r] = scale * dequantised row ids[r] of the packed table
  const PackedMatrix* table;
  const int32_t* ids;
  float* out;
  int64_t ldout;
  float scale;
  int32_t row_begin, row_end;
};

struct QuantiseArgs {
  const float* x;
  int64_t ldx;
  QuantRows out;
  int32_t row_begin, row_end;
  const int32_t* order;      // column i of out is column order[i] of x; null: in order. Read in groups only
};

// out[r][0..cols): add (a + b), silu_mul / gelu_mul (act(a) * b), gelu (of a, by erf), softcap (s * tanh(a / s)), scale (s * a),
// gate_rows (a * sigmoid(b[r][0]))
struct ElementArgs {
  const float* a;
  const float* b;
  float* out;
  int64_t lda, ldb, ldout;
  int32_t cols;
  int32_t row_begin, row_end;
  float scalar;              // s
};

constexpr int32_t kMaxExperts = 1024;

struct RouteArgs {           // logits [rows][num_experts] -> out [rows][2 * top_k]: experts as whole numbers, then their weights
  const float* logits;
  float* out;
  int64_t ldx, ldout;
  int32_t num_experts, top_k;   // at most kMaxExperts
  bool renormalise;             // the weights of a row sum to 1
  int32_t row_begin, row_end;
};

struct CombineArgs {         // out[r] = sum over slots, in their order, of weight * x[rows[r][slot]]
  const float* x;
  const float* routes;       // what RouteArgs wrote
  const int32_t* rows;       // [rows][top_k]
  float* out;
  int64_t ldx, ldroutes, ldout;
  int32_t cols, top_k;
  int32_t row_begin, row_end;
};

constexpr int32_t kSampleScratch = 5;

// One row's sampling settings; see octavo.ops.interface.SampleRows for meaning and order.
struct SampleArgs {
  const float* logits;       // [vocab], unchanged
  int32_t vocab;
  float temperature, top_p, min_p, repetition, presence, frequency;
  int32_t top_k, choice, position, num_prompt;
  uint64_t seed;
  const int32_t* history;
  int64_t history_len;
  const int32_t* bias_ids;
  const float* bias_values;
  int64_t bias_len;
  const uint32_t* mask;      // a bit for each id that may be chosen, lowest first; null: all may
  int32_t mask_words;        // ids beyond them may not
  int32_t top_logprobs;      // -1: none
  int32_t given_token;       // -1: choose; else report the logprob of this token and choose nothing
  float* scratch;            // at least kSampleScratch * vocab floats
  int32_t* token;
  bool* is_finite;           // the token's logit, and its logprob if there is one
  float* logprob;
  int32_t* rank;
  int32_t* top_ids;
  float* top_values;
};

struct KernelTable {
  const char* isa;
  void (*gemm)(const GemmArgs&);
  void (*quantise)(const QuantiseArgs&);
  void (*attention)(const AttentionArgs&);
  int32_t (*attention_tile)(int32_t num_heads, int32_t num_kv_heads);   // preferred token rows t1 - t0 per call
  int64_t (*attention_scratch)(int32_t num_heads, int32_t num_kv_heads, int32_t head_dim);   // floats per thread
  int64_t (*attention_partial)(int32_t rows, int32_t head_dim);   // floats per split; rows: query rows of the tile
  void (*attention_merge)(const AttentionArgs&);
  void (*rms_norm)(const NormArgs&);
  void (*layer_norm)(const NormArgs&);
  void (*rope)(const RopeArgs&);
  void (*kv_write)(const KvWriteArgs&);
  void (*embedding)(const EmbeddingArgs&);
  void (*add)(const ElementArgs&);
  void (*silu_mul)(const ElementArgs&);
  void (*gelu_mul)(const ElementArgs&);
  void (*gelu)(const ElementArgs&);
  void (*softcap)(const ElementArgs&);
  void (*scale)(const ElementArgs&);
  void (*gate_rows)(const ElementArgs&);
  void (*route)(const RouteArgs&);
  void (*combine)(const CombineArgs&);
  void (*sample)(const SampleArgs&);
  double (*probe_fma)(int64_t rounds, float* sink);    // multiply-accumulates done; sink holds two floats
  double (*probe_int8)(int64_t rounds, float* sink);
};

// One per unit in isa/; a unit that the compiler cannot build for this machine's architecture is left out by CMake.
const KernelTable* portable_table();
#if defined(OCTAVO_X86)
const KernelTable* avx2_table();
#if defined(OCTAVO_AVXVNNI)   // the compiler knows the instructions
const KernelTable* avxvnni_table();   // AVX2 and VEX-encoded VNNI of 256 bits
#endif
const KernelTable* avx512_table();   // F, BW, DQ, VL and VNNI
#endif
#if defined(OCTAVO_ARM)
const KernelTable* neon_table();
#endif

}  // namespace octavo
