// FileGuard: reading a file map whose file has been cut short, or whose disk fails, gives zeros instead of SIGBUS.
#pragma once

#include <cstddef>

namespace octavo {

// Guards the map at `data`, from the constructor to the destructor; the map must live longer. The first guard gives the process
// a handler of SIGBUS. A fault at any other address ends as it would have without it.
class FileGuard {
 public:
  FileGuard(const void* data, size_t bytes);
  ~FileGuard();
  FileGuard(const FileGuard&) = delete;
  FileGuard& operator=(const FileGuard&) = delete;

  // Whether bytes were wanted that the file no longer had: then there are zeros from there to the end of the map.
  bool was_cut() const;

  struct Watch;

 private:
  Watch* watch_;
};

}  // namespace octavo
