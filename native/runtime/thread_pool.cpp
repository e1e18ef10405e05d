#include "runtime/thread_pool.h"

#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>

namespace octavo {
namespace {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A helper that finds nothing to do spins this long before it sleeps: longer than the gap between two steps of a busy engine,
// short enough that an idle server uses no CPU.
constexpr auto kSpin = std::chrono::microseconds(300);
// At a barrier another member may have lost its core to a third process; after this many looks let that process run.
constexpr int kBarrierLooks = 4000;

}  // namespace

ThreadPool::ThreadPool(int size) : size_(size < 1 ? 1 : size), owner_(getpid()) {
  try {
    for (int member = 1; member < size_; ++member) helpers_.emplace_back([this, member] { helper(member); });
  } catch (const std::system_error& error) {
    const auto started = helpers_.size();
    stop();
    throw std::runtime_error("only " + std::to_string(started) + " of " + std::to_string(size_ - 1) +
                             " compute threads could be started (" + error.what() + ")");
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  if (getpid() != owner_) {
    // A forked copy of the process has no such threads: to join them, or to destroy what they sleep on, would wait for ever.
    for (auto& thread : helpers_) thread.detach();
    wake_.release();
    return;
  }
  stopping_.store(true);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    generation_.fetch_add(1);
  }
  wake_->notify_all();
  for (auto& thread : helpers_) thread.join();
}

void ThreadPool::run(void (*job)(void*, int), void* context) {
  if (size_ == 1) {
    job(context, 0);
    return;
  }
  job_ = job;
  context_ = context;
  working_.store(size_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1);
  if (sleeping_.load() > 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    wake_->notify_all();
  }
  job(context, 0);
  for (int looks = 0; working_.load(std::memory_order_acquire) != 0; ++looks) pause(looks);
}

void ThreadPool::pause(int looks) {
  if (looks < kBarrierLooks) relax(); else sched_yield();
}

void ThreadPool::helper(int member) {
  uint32_t seen = 0;
  for (;;) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    while (generation_.load(std::memory_order_acquire) == seen) {
      for (int i = 0; i < 64 && generation_.load(std::memory_order_acquire) == seen; ++i) relax();
      if (std::chrono::steady_clock::now() > deadline) {
        std::unique_lock<std::mutex> lock(mutex_);
        sleeping_.fetch_add(1);
        wake_->wait(lock, [&] { return generation_.load() != seen; });
        sleeping_.fetch_sub(1);
      }
    }
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    job_(context_, member);
    working_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

}  // namespace octavo
