#include "runtime/memory.h"

#include <sys/mman.h>

#include <new>

namespace octavo {

Block::Block(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  data_ = data;
}

Block::~Block() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace octavo
