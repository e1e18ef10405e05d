#include "tape/routing.h"

namespace octavo {

void Routing::reserve(int32_t max_tokens, int32_t top_k, int32_t num_experts) {
  const size_t rows = static_cast<size_t>(max_tokens) * top_k, experts = static_cast<size_t>(num_experts);
  tokens_.reserve(rows);
  rows_.reserve(rows);
  active_.reserve(experts);
  first_.reserve(experts + 1);
  next_.reserve(experts);
}

void Routing::sort(const float* ids, int64_t stride, int32_t num_tokens, int32_t top_k, int32_t num_experts) {
  first_.assign(static_cast<size_t>(num_experts) + 1, 0);
  for (int32_t token = 0; token < num_tokens; ++token)
    for (int32_t slot = 0; slot < top_k; ++slot) ++first_[static_cast<int32_t>(ids[token * stride + slot]) + 1];
  active_.clear();
  for (int32_t expert = 0; expert < num_experts; ++expert) {
    if (first_[expert + 1] > 0) active_.push_back(expert);
    first_[expert + 1] += first_[expert];
  }
  next_.assign(first_.begin(), first_.end() - 1);
  tokens_.resize(static_cast<size_t>(num_tokens) * top_k);
  rows_.resize(tokens_.size());
  for (int32_t token = 0; token < num_tokens; ++token) {
    for (int32_t slot = 0; slot < top_k; ++slot) {
      const int32_t row = next_[static_cast<int32_t>(ids[token * stride + slot])]++;
      tokens_[row] = token;
      rows_[token * top_k + slot] = row;
    }
  }
}

}  // namespace octavo
