#include "runtime/file_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

namespace octavo {

// One guarded range. The handler may walk the list at any instant, so that an entry is never freed: with end 0 it matches no
// address and waits for the next guard.
struct FileGuard::Watch {
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<bool> cut{false};
  Watch* next = nullptr;
};

namespace {

std::atomic<FileGuard::Watch*> watches{nullptr};
std::mutex mutex;
struct sigaction before;   // what SIGBUS did before the first guard
const uintptr_t page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));

// Calls nothing but mmap, sigaction and raise, which are safe here.
void on_bus_error(int, siginfo_t* info, void*) {
  const int saved = errno;
  const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
  const bool is_fault = info->si_code > 0;   // otherwise somebody sent the signal, and there is no address
  for (FileGuard::Watch* watch = watches.load(); is_fault && watch; watch = watch->next) {
    const uintptr_t end = watch->end.load();
    if (address < watch->begin.load() || address >= end) continue;
    // All that follows becomes zeros at once: one page after the other would be one mapping after the other.
    const uintptr_t page = address / page_bytes * page_bytes;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(reinterpret_cast<void*>(page), end - page, PROT_READ, flags, -1, 0) == MAP_FAILED) break;
    watch->cut = true;
    errno = saved;
    return;   // the instruction reads again
  }
  sigaction(SIGBUS, &before, nullptr);
  if (!is_fault) raise(SIGBUS);   // a fault comes again by itself
}

// Each guard makes sure of the handler: others may have put theirs in its place since. Only what was there before the first is
// ever restored, for whoever came later may hand over to this one.
void install() {
  static bool is_first = true;
  struct sigaction now, ours = {};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigaction(SIGBUS, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus_error) return;
  if (is_first) before = now;
  is_first = false;
  sigaction(SIGBUS, &ours, nullptr);
}

}  // namespace

FileGuard::FileGuard(const void* data, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex);
  install();
  for (watch_ = watches.load(); watch_ && watch_->end.load() != 0; watch_ = watch_->next) {}
  if (!watch_) {
    watch_ = new Watch;
    watch_->next = watches.load();
    watches = watch_;
  }
  watch_->cut = false;
  watch_->begin = reinterpret_cast<uintptr_t>(data);
  watch_->end = reinterpret_cast<uintptr_t>(data) + bytes;
}

FileGuard::~FileGuard() {
  const std::lock_guard<std::mutex> lock(mutex);
  watch_->end = 0;
}

bool FileGuard::was_cut() const { return watch_->cut; }

}  // namespace octavo
