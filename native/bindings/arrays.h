// Array types of the border, and the checks that keep plain pointers safe behind it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace octavo {

namespace nb = nanobind;

template <class T, size_t N>
using Array = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

template <class T, size_t N>
using OutArray = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

inline void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

// Every value of [begin, end) lies in [low, high).
inline void require_range(const int32_t* begin, size_t count, int64_t low, int64_t high, const char* what) {
  for (size_t i = 0; i < count; ++i) {
    if (begin[i] < low || begin[i] >= high) {
      throw std::invalid_argument(std::string(what) + " " + std::to_string(begin[i]) + " is outside [" + std::to_string(low) +
                                  ", " + std::to_string(high) + ")");
    }
  }
}

void bind_runtime(nb::module_& module);
void bind_weights(nb::module_& module);
void bind_tape(nb::module_& module);
void bind_sampler(nb::module_& module);
void bind_kvcache(nb::module_& module);

}  // namespace octavo
