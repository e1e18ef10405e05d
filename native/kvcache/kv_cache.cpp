#include "kvcache/kv_cache.h"

namespace octavo {
namespace {

template <class Move>
void share(size_t count, ThreadPool& pool, const Move& move) {
  if (count == 1) {   // the usual step: waking the helpers would take longer than they could save
    move(0);
    return;
  }
  const size_t members = static_cast<size_t>(pool.size());
  pool.run([&](int member) {
    for (size_t i = static_cast<size_t>(member); i < count; i += members) move(i);
  });
}

}  // namespace

void KvCache::to_host(const BlockMove* moves, size_t count, uint8_t* host, ThreadPool& pool) const {
  const size_t bytes = block_bytes();
  share(count, pool, [&](size_t i) { std::memcpy(host + bytes * moves[i].row, block(moves[i].block), bytes); });
}

void KvCache::from_host(const BlockMove* moves, size_t count, const uint8_t* host, ThreadPool& pool) const {
  const size_t bytes = block_bytes();
  share(count, pool, [&](size_t i) { std::memcpy(block(moves[i].block), host + bytes * moves[i].row, bytes); });
}

}  // namespace octavo
