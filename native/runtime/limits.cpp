#include "runtime/limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "runtime/memory.h"

namespace octavo {
namespace {

constexpr size_t kReadBytes = size_t{192} << 20;
constexpr int kRounds = 5;
constexpr double kProbeSeconds = 0.02;

template <class Work>
double seconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double read_rate(ThreadPool& pool) {
  Block block(kReadBytes);
  std::memset(block.as<void>(), 1, kReadBytes);
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double elapsed = seconds([&] {
      pool.run([&](int member) {
        const size_t words = kReadBytes / sizeof(uint64_t) / pool.size();
        const uint64_t* data = block.as<uint64_t>() + words * member;
        uint64_t sum[8] = {};
        for (size_t i = 0; i + 8 <= words; i += 8)
          for (int lane = 0; lane < 8; ++lane) sum[lane] += data[i + lane];
        sink += sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
      });
    });
    best = std::max(best, kReadBytes / elapsed);
  }
  return best;
}

double arithmetic_rate(ThreadPool& pool, double (*probe)(int64_t, float*)) {
  float calibration[2] = {1e-9f, 0.5f};
  const double one = seconds([&] { probe(10000, calibration); });
  const int64_t rounds = std::max<int64_t>(10000, static_cast<int64_t>(10000 * kProbeSeconds / std::max(one, 1e-7)));
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int64_t> macs{0};
    const double elapsed = seconds([&] {
      pool.run([&](int) {
        float sink[2] = {1e-9f, 0.5f};
        macs += static_cast<int64_t>(probe(rounds, sink));
      });
    });
    best = std::max(best, static_cast<double>(macs.load()) / elapsed);
  }
  return best;
}

}  // namespace

Limits measure_limits(ThreadPool& pool, const KernelTable& kernels) {
  return {read_rate(pool), arithmetic_rate(pool, kernels.probe_fma), arithmetic_rate(pool, kernels.probe_int8)};
}

}  // namespace octavo
