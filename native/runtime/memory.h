// Block: an aligned piece of zeroed memory, taken from the system and given back to it.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace octavo {

// How a block's pages come from the system.
enum class Paging {
  dense,   // shares huge pages with its neighbours: for what will be used as a whole. The addresses of small pages must be
           // looked up one by one, which slows down products that read their weights from memory
  sparse,  // a mapping of its own: small pages that cost nothing until they are touched, and return when the block goes
  huge     // as sparse, of huge pages
};

class Block {
 public:
  Block() = default;
  explicit Block(size_t bytes, Paging paging = Paging::dense);   // aligned to 64 bytes; throws std::bad_alloc
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  Block(Block&& other) noexcept : data_(std::move(other.data_)), bytes_(std::exchange(other.bytes_, 0)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  template <class T>
  T* as() const { return static_cast<T*>(data_.get()); }
  size_t bytes() const { return bytes_; }

  // Gives back the pages that lie wholly within bytes [begin, end); they read as zeros again.
  void forget(size_t begin, size_t end);

 private:
  std::shared_ptr<void> data_;   // owns the mapping that the block lies in, with others or alone
  size_t bytes_ = 0;
};

}  // namespace octavo
