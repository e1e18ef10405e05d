// Tokens from one KV cache to another that differs in number and size of blocks alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/thread_pool.h"
#include "kvcache/kv_cache.h"

namespace octavo {

// `count` tokens that stand side by side within one block, in the source as in the target. A slot is block * block_size + offset.
struct TokenRun {
  int32_t source_slot, target_slot, count;
};

// Copies keys and values, scales included, bit by bit, and gives back the memory of each block of the source once it is done
// with it: the source is spent. Targets must be distinct; the runs were checked.
void take_tokens(KvCache& target, KvCache& source, const TokenRun* runs, size_t num_runs, ThreadPool& pool);

}  // namespace octavo
