// Block: an aligned piece of zeroed memory, taken from the system and given back to it.
#pragma once

#include <cstddef>
#include <utility>

namespace octavo {

// Memory comes straight from mmap: pages cost nothing until they are touched, and all of it returns to the system when the
// block goes.
class Block {
 public:
  Block() = default;
  explicit Block(size_t bytes);   // throws std::bad_alloc
  ~Block();
  Block(Block&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  template <class T>
  T* as() const { return static_cast<T*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace octavo
