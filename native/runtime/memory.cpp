#include "runtime/memory.h"

#include <sys/mman.h>
#include <unistd.h>

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

// A mapping that begins with a huge page, where the system has them: advice that fails leaves small ones.
std::shared_ptr<void> map_huge(size_t bytes) {
  const std::shared_ptr<void> mapping = map(bytes + kHugePage);   // room to align the start
  const uintptr_t start = round_up(reinterpret_cast<uintptr_t>(mapping.get()), kHugePage);
  void* const data = reinterpret_cast<void*>(start);
#if defined(MADV_HUGEPAGE)
  madvise(data, bytes, MADV_HUGEPAGE);
#endif
  return {mapping, data};
}

std::shared_ptr<void> map(size_t bytes, Paging paging) { return paging == Paging::huge ? map_huge(bytes) : map(bytes); }

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
    const size_t bytes = round_up(size < kRegionBytes ? kRegionBytes : size, kHugePage);
    const std::shared_ptr<void> region = map_huge(bytes);
    newest_ = region;
    next_ = reinterpret_cast<uintptr_t>(region.get()) + size;
    end_ = next_ - size + bytes;
    return region;
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
  if (bytes > 0) data_ = paging == Paging::dense ? regions().take(bytes) : map(bytes, paging);
}

void Block::forget(size_t begin, size_t end) {
  const uintptr_t base = reinterpret_cast<uintptr_t>(data_.get());
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = round_up(base + begin, page), last = (base + end) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace octavo
