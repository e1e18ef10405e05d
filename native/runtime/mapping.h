// Mapping: memory whose size can change.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

// Zeroed pages that cost nothing until they are touched. What lies within an old size and a new one keeps its content, though
// not its address; what lies beyond the new one returns to the system.
class Mapping {
 public:
  explicit Mapping(size_t bytes) { resize(bytes); }   // throws std::bad_alloc
  ~Mapping() { resize(0); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void resize(size_t bytes);   // throws std::bad_alloc, and all is as it was then
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace octavo
