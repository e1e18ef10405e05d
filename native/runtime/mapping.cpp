#include "runtime/mapping.h"

#include <sys/mman.h>

#include <new>

namespace octavo {

void Mapping::resize(size_t bytes) {
  if (bytes == bytes_) return;
  void* data = nullptr;
  if (bytes == 0) {
    munmap(data_, bytes_);
  } else if (bytes_ == 0) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  } else {
    data = mremap(data_, bytes_, bytes, MREMAP_MAYMOVE);   // moves the pages' addresses, not their content
  }
  if (data == MAP_FAILED) throw std::bad_alloc();
  data_ = data;
  bytes_ = bytes;
}

}  // namespace octavo
