#pragma once

#include <chrono>
#include <cstdint>

namespace octavo {

// Nanoseconds since it was made; one that is not wanted does not look at the clock.
class Stopwatch {
 public:
  explicit Stopwatch(bool wanted) : wanted_(wanted), start_(wanted ? Clock::now() : Clock::time_point()) {}
  int64_t nanoseconds() const { return wanted_ ? std::chrono::nanoseconds(Clock::now() - start_).count() : 0; }

 private:
  using Clock = std::chrono::steady_clock;
  const bool wanted_;
  const Clock::time_point start_;
};

}  // namespace octavo
