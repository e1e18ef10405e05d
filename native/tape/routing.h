// Routing: the rows of a step in a mixture of experts, sorted by expert.
//
// Each token row becomes top_k routed rows, one per expert it goes to. Routed rows of an expert lie one after the other, in the
// order of their tokens, so that a product of an expert is one of a range of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace octavo {

class Routing {
 public:
  // Memory for the largest step, so that sort takes none: it runs on threads where nothing may throw. Throws std::bad_alloc.
  void reserve(int32_t max_tokens, int32_t top_k, int32_t num_experts);

  // ids [num_tokens][top_k], stride floats from row to row: the experts of each token, as whole numbers.
  void sort(const float* ids, int64_t stride, int32_t num_tokens, int32_t top_k, int32_t num_experts);

  int32_t token_of(int32_t routed_row) const { return tokens_[routed_row]; }
  // [num_tokens][top_k] routed rows of each token.
  const int32_t* rows() const { return rows_.data(); }

  // Experts that have rows, in rising order.
  int32_t num_active() const { return static_cast<int32_t>(active_.size()); }
  int32_t expert(int32_t index) const { return active_[index]; }
  int32_t first_row(int32_t index) const { return first_[active_[index]]; }
  int32_t last_row(int32_t index) const { return first_[active_[index] + 1]; }

 private:
  std::vector<int32_t> tokens_, rows_, active_;
  std::vector<int32_t> first_;   // [num_experts + 1] first routed row of each expert
  std::vector<int32_t> next_;    // [num_experts] while rows are dealt out
};

}  // namespace octavo
