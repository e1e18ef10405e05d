// A fixed team of threads that runs one function at a time, all members at once.
//
// Between jobs the helpers spin briefly (the next step usually follows at once), then sleep: the API process shares the same
// cores. Inside a job the members meet at `barrier`, which costs well under a microsecond when all of them are running.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace octavo {

class ThreadPool {
 public:
  // Throws std::runtime_error when the system gives no more threads.
  explicit ThreadPool(int size);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Calls job(context, member) on every member 0..size-1; the caller is member 0. Returns when all have returned.
  void run(void (*job)(void*, int), void* context);

  // Same with any callable void(int member).
  template <class Job>
  void run(Job&& job) {
    run([](void* context, int member) { (*static_cast<std::remove_reference_t<Job>*>(context))(member); }, &job);
  }

  // Meeting point of all members inside a job: nobody passes before everybody came and the last one to come has run `finish`.
  // The others call `meanwhile` again and again, which should take well under a microsecond.
  template <class Finish, class Meanwhile>
  void barrier(const Finish& finish, const Meanwhile& meanwhile) {
    const uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
      finish();
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      return;
    }
    for (int looks = 0; phase_.load(std::memory_order_acquire) == phase; ++looks) {
      meanwhile();
      pause(looks);
    }
  }

  // To be called between two looks at something that another member will change: gives way after many of them.
  static void pause(int looks);

 private:
  void helper(int member);
  void stop();

  const int size_;
  const int owner_;  // process id
  void (*job_)(void*, int) = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};   // counts jobs; a change wakes the helpers
  alignas(64) std::atomic<int> working_{0};           // helpers that have not finished the current job
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<int> sleeping_{0};
  std::mutex mutex_;
  std::unique_ptr<std::condition_variable> wake_ = std::make_unique<std::condition_variable>();
  std::vector<std::thread> helpers_;
};

}  // namespace octavo
