#include "runtime/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <mutex>
#include <new>

namespace octavo {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRegionBytes = 16 * kHugePage;   // address space taken at a time; its pages come as they are touched

size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

std::shared_ptr<void> map(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  return {data, [bytes](void* mapped) { munmap(mapped, bytes); }};
}

// Dense blocks one after the other, in mappings that live as long as one of their blocks.
class Regions {
 public:
  std::shared_ptr<void> take(size_t bytes) {
    const size_t size = round_up(bytes, kLine);
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::shared_ptr<void> newest = newest_.lock();
    if (newest == nullptr || end_ - next_ < size) return open(size);
    void* const data = reinterpret_cast<void*>(next_);
    next_ += size;
    return {newest, data};
  }

 private:
  std::shared_ptr<void> open(size_t size) {
    const size_t bytes = round_up(size < kRegionBytes ? kRegionBytes : size, kHugePage) + kHugePage;   // room to align the start
    const std::shared_ptr<void> region = map(bytes);
    const uintptr_t start = reinterpret_cast<uintptr_t>(region.get());
    const uintptr_t aligned = round_up(start, kHugePage);
#if defined(MADV_HUGEPAGE)
    madvise(reinterpret_cast<void*>(aligned), bytes - kHugePage, MADV_HUGEPAGE);   // a hint: where it fails, small pages do
#endif
    newest_ = region;
    next_ = aligned + size;
    end_ = start + bytes;
    return {region, reinterpret_cast<void*>(aligned)};
  }

  std::mutex mutex_;
  std::weak_ptr<void> newest_;
  uintptr_t next_ = 0, end_ = 0;
};

Regions& regions() {
  static Regions* const instance = new Regions;   // never destroyed: blocks may outlive static objects
  return *instance;
}

}  // namespace

Block::Block(size_t bytes, Paging paging) : bytes_(bytes) {
  if (bytes > 0) data_ = paging == Paging::dense ? regions().take(bytes) : map(bytes);
}

}  // namespace octavo
