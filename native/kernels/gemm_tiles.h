#pragma once
// What the two GEMM families share: how a range of rows and panels is cut into register tiles, and how a tile is stored.
//
// A tile is R rows x P panels of 16 outputs. Every output is one chain over k of its own, so tiles cannot change a byte.
//
//   panels  |0 1 2 3|4 5 6 7|...   chunks of kChunk panels: small enough to stay in the L2 cache
//   rows    |block  |block  |...   blocks of rows whose activations stay in the L2 cache
//   order   for each block, for each chunk: tiles of kMaxRows rows, then one smaller tile for the remaining rows

constexpr int kChunk = 4;

struct TileRange {
  int32_t row_begin, row_end;
  int32_t panel_begin, panel_end;
  bool cold;  // these tiles are the first to touch the panels
};

// What a tile fetches into L2 of the panels that come next: its steps first, first + stride, ... ; the tiles that share a panel
// fetch a part each, so that memory is read all the time. A fetch into L1 helps less.
struct Fetch {
  int32_t first, stride;

  OCTAVO_INLINE bool due(int32_t step) {
    if (step != first) return false;
    first += stride;
    return true;
  }
};

// Adds the bias, then the residual, each in a rounding of its own, and stores one row of one panel.
OCTAVO_INLINE void store_output(const GemmArgs& args, int row, int panel, F16x sum) {
  const int column = panel * kPanel;
  const int valid = args.weight->rows - column;
  if (args.weight->bias) sum = add(sum, load(args.weight->bias + column));
  float* out = args.out + row * args.ldout + column;
  if (valid >= kPanel) {
    if (args.residual) sum = add(load(args.residual + row * args.ldr + column), sum);
    store(out, sum);
  } else {
    if (args.residual) sum = add(load_n(args.residual + row * args.ldr + column, valid), sum);
    store_n(out, sum, valid);
  }
}

// All tiles of R x P in a range whose row count is a multiple of R. Where fewer than P panels are left, the last one is
// computed again in the place of the missing ones and only the valid ones are stored.
template <class Family, int R>
void run_tiles(const GemmArgs& args, const TileRange& range) {
  constexpr int P = Family::template panels<R>();
  for (int panel = range.panel_begin; panel < range.panel_end; panel += P) {
    const int left = range.panel_end - panel;
    const int tiles = (range.row_end - range.row_begin) / R;
    for (int tile = 0; tile < tiles; ++tile) {
      const Fetch fetch{range.cold ? tile : INT32_MAX, tiles};
      Family::template tile<R, P>(args, range.row_begin + tile * R, panel, left < P ? left : P, fetch);
    }
  }
}

// The rows that no full tile covers: one tile of exactly that many rows.
template <class Family, int R>
OCTAVO_INLINE void run_rest(const GemmArgs& args, const TileRange& range) {
  if constexpr (R > 0) {
    if (range.row_end - range.row_begin == R) {
      run_tiles<Family, R>(args, range);
    } else {
      run_rest<Family, R - 1>(args, range);
    }
  }
}

template <class Family>
void run_gemm(const GemmArgs& args, int row_block) {
  for (int row = args.row_begin; row < args.row_end; row += row_block) {
    const int block_end = row + row_block < args.row_end ? row + row_block : args.row_end;
    const int full_end = block_end - (block_end - row) % Family::kMaxRows;
    for (int panel = args.panel_begin; panel < args.panel_end; panel += kChunk) {
      const int chunk_end = panel + kChunk < args.panel_end ? panel + kChunk : args.panel_end;
      run_tiles<Family, Family::kMaxRows>(args, {row, full_end, panel, chunk_end, true});
      run_rest<Family, Family::kMaxRows - 1>(args, {full_end, block_end, panel, chunk_end, full_end == row});
    }
  }
}
