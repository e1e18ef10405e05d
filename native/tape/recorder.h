// Recorder: from model operations to the instructions of a recording.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kvcache/kv_cache.h"
#include "tape/recording.h"

namespace octavo {

class Recorder {
 public:
  // The cache gives the shape that attention must have. `emitted` is called after each instruction.
  explicit Recorder(std::shared_ptr<const KvCache> cache, std::function<void()> emitted = {});
  Recorder(const Recorder&) = delete;

  // Operands must be views of this recording; sizes were checked by the caller (bindings).
  View embedding(std::shared_ptr<const Linear> table, float scale, IndexKind index);
  View linear(View x, std::shared_ptr<const Linear> weight);
  View rms_norm(View x, std::shared_ptr<const Vector> weight, float eps);
  View layer_norm(View x, std::shared_ptr<const Vector> weight, std::shared_ptr<const Vector> bias, float eps);
  View add(View a, View b);
  View rope(View x, std::shared_ptr<const RopeTable> table, int32_t head_dim);
  void kv_write(View k, View v, const AttentionLayer& layer);
  View attention(View q, const AttentionLayer& layer);
  View gated(OpCode op, View gate_up);
  View gelu(View x);
  View select_rows(View x);
  View softcap(View x, float cap);
  View scale(View x, float factor);
  View gate_rows(View x, View gate);
  View route(View logits, RouteRule rule);
  View dispatch(View x, View routes);
  View experts(View x, std::vector<std::shared_ptr<const Linear>> weights);
  View combine(View x, View routes);

  bool fits_cache(const AttentionLayer& layer) const {
    return layer.layer >= 0 && layer.layer < cache_->num_layers && layer.num_kv_heads == cache_->num_kv_heads &&
           layer.head_dim == cache_->head_dim;
  }
  RowKind kind_of(View view) const { return recording_->buffers[view.buffer].kind; }

  // What was recorded, sealed; nothing can be added any more. Views of no buffer: there is no such output.
  std::shared_ptr<const Recording> seal(View logits, View hidden);

  // As recorded so far.
  std::shared_ptr<const Recording> recording() const { return recording_; }
  // Forgets all instructions and buffers; the slots of rounded rows stay.
  void clear();

 private:
  Instruction instruction(OpCode op, RowKind rows, std::vector<View> inputs) const;
  View emit(Instruction instruction, int32_t cols);
  void emit(Instruction instruction);
  // What was rounded into a slot last, and in the order of which weight.
  struct Held {
    View x;
    const Linear* order = nullptr;
  };
  int32_t quantise(View x, int32_t group, std::shared_ptr<const Linear> order);

  std::shared_ptr<const KvCache> cache_;
  std::function<void()> emitted_;
  std::shared_ptr<Recording> recording_ = std::make_shared<Recording>();
  std::vector<Held> holds_;   // per slot
};

}  // namespace octavo
