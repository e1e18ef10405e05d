#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <vector>

#include "bindings/arrays.h"
#include "runtime/isa.h"
#include "sampling/sampler.h"

namespace octavo {
namespace {

// Structure of arrays in the order of octavo.ops.interface.SampleRows.
struct RowArrays {
  Array<int32_t, 1> logit_row;
  Array<float, 1> temperature;
  Array<int32_t, 1> top_k;
  Array<float, 1> top_p, min_p, repetition, presence, frequency;
  Array<uint64_t, 1> seed;
  Array<int32_t, 1> choice, position, history;
  Array<int64_t, 1> history_start;
  Array<int32_t, 1> num_prompt, bias_ids;
  Array<float, 1> bias_values;
  Array<int64_t, 1> bias_start;
  Array<int32_t, 1> top_logprobs, mask_row;
  Array<int32_t, 2> masks;
};

struct Outputs {
  OutArray<int32_t, 1> token;
  OutArray<bool, 1> is_finite;
  OutArray<float, 1> logprob;
  OutArray<int32_t, 1> rank;
  OutArray<int32_t, 2> top_ids;
  OutArray<float, 2> top_values;
};

using Logits = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;

void check_slices(const Array<int64_t, 1>& start, size_t rows, size_t total, const char* message) {
  require(start.shape(0) == rows + 1 && start.data()[0] >= 0 && start.data()[rows] <= static_cast<int64_t>(total), message);
  for (size_t i = 0; i < rows; ++i) require(start.data()[i] <= start.data()[i + 1], message);
}

void check_outputs(const Outputs& out, size_t rows, int32_t vocab, const int32_t* top) {
  require(out.token.shape(0) == rows && out.is_finite.shape(0) == rows && out.logprob.shape(0) == rows && out.rank.shape(0) == rows && out.top_ids.shape(0) == rows &&
              out.top_values.shape(0) == rows && out.top_ids.shape(1) == out.top_values.shape(1),
          "outputs must have one entry per row");
  const int64_t limit = std::min<int64_t>(static_cast<int64_t>(out.top_ids.shape(1)), vocab);
  require_range(top, rows, -1, limit + 1, "top_logprobs");
}

SampleArgs base_args(const Logits& logits, int32_t row, const Outputs& out, size_t i) {
  SampleArgs args{};
  args.logits = logits.data() + row * logits.stride(0);
  args.vocab = static_cast<int32_t>(logits.shape(1));
  args.token = out.token.data() + i;
  args.is_finite = out.is_finite.data() + i;
  args.logprob = out.logprob.data() + i;
  args.rank = out.rank.data() + i;
  args.top_ids = out.top_ids.data() + i * out.top_ids.shape(1);
  args.top_values = out.top_values.data() + i * out.top_values.shape(1);
  args.given_token = -1;
  return args;
}

void check_logits(const Logits& logits) {
  require(logits.shape(1) > 0 && logits.stride(1) == 1, "logits must be [rows, vocab] with contiguous rows");
}

void sample(Sampler& sampler, const Logits& logits, const RowArrays& r, const Outputs& out) {
  const size_t rows = r.logit_row.shape(0);
  check_logits(logits);
  const int32_t vocab = static_cast<int32_t>(logits.shape(1));
  require_range(r.logit_row.data(), rows, 0, static_cast<int64_t>(logits.shape(0)), "logit row");
  for (size_t size : {r.temperature.shape(0), r.top_k.shape(0), r.top_p.shape(0), r.min_p.shape(0), r.repetition.shape(0),
                      r.presence.shape(0), r.frequency.shape(0), r.seed.shape(0), r.choice.shape(0), r.position.shape(0),
                      r.num_prompt.shape(0), r.top_logprobs.shape(0), r.mask_row.shape(0)})
    require(size == rows, "settings must have one entry per row");
  check_slices(r.history_start, rows, r.history.shape(0), "history_start does not fit history");
  check_slices(r.bias_start, rows, r.bias_ids.shape(0), "bias_start does not fit bias_ids");
  require(r.bias_ids.shape(0) == r.bias_values.shape(0), "bias_ids and bias_values must have one length");
  require_range(r.history.data(), r.history.shape(0), 0, vocab, "history token id");
  require_range(r.bias_ids.data(), r.bias_ids.shape(0), 0, vocab, "bias token id");
  check_outputs(out, rows, vocab, r.top_logprobs.data());
  require_range(r.mask_row.data(), rows, -1, static_cast<int64_t>(r.masks.shape(0)), "mask row");
  std::vector<SampleArgs> all(rows);
  for (size_t i = 0; i < rows; ++i) {
    SampleArgs args = base_args(logits, r.logit_row.data()[i], out, i);
    args.temperature = r.temperature.data()[i];
    args.top_k = r.top_k.data()[i];
    args.top_p = r.top_p.data()[i];
    args.min_p = r.min_p.data()[i];
    args.repetition = r.repetition.data()[i];
    args.presence = r.presence.data()[i];
    args.frequency = r.frequency.data()[i];
    args.seed = r.seed.data()[i];
    args.choice = r.choice.data()[i];
    args.position = r.position.data()[i];
    args.num_prompt = r.num_prompt.data()[i];
    args.history = r.history.data() + r.history_start.data()[i];
    args.history_len = r.history_start.data()[i + 1] - r.history_start.data()[i];
    args.bias_ids = r.bias_ids.data() + r.bias_start.data()[i];
    args.bias_values = r.bias_values.data() + r.bias_start.data()[i];
    args.bias_len = r.bias_start.data()[i + 1] - r.bias_start.data()[i];
    args.top_logprobs = r.top_logprobs.data()[i];
    if (const int32_t mask = r.mask_row.data()[i]; mask >= 0) {
      args.mask_words = static_cast<int32_t>(r.masks.shape(1));
      args.mask = reinterpret_cast<const uint32_t*>(r.masks.data()) + static_cast<int64_t>(mask) * args.mask_words;
    }
    all[i] = args;
  }
  nb::gil_scoped_release release;
  sampler.run(all);
}

void given(Sampler& sampler, const Logits& logits, const Array<int32_t, 1>& logit_rows, const Array<int32_t, 1>& token_ids,
           int32_t top, const Outputs& out) {
  const size_t rows = logit_rows.shape(0);
  check_logits(logits);
  const int32_t vocab = static_cast<int32_t>(logits.shape(1));
  require(token_ids.shape(0) == rows, "token_ids must have one entry per row");
  require_range(logit_rows.data(), rows, 0, static_cast<int64_t>(logits.shape(0)), "logit row");
  require_range(token_ids.data(), rows, 0, vocab, "token id");
  const std::vector<int32_t> tops(rows, top);
  check_outputs(out, rows, vocab, tops.data());
  std::vector<SampleArgs> all(rows);
  for (size_t i = 0; i < rows; ++i) {
    SampleArgs args = base_args(logits, logit_rows.data()[i], out, i);
    args.given_token = token_ids.data()[i];
    args.top_logprobs = top;
    all[i] = args;
  }
  nb::gil_scoped_release release;
  sampler.run(all);
}

}  // namespace

void bind_sampler(nb::module_& module) {
  nb::class_<Sampler>(module, "Sampler", "Chooses tokens and computes logprobs, one row at a time on the pool.")
      .def_static(
          "create",
          [](std::shared_ptr<ThreadPool> pool, const std::string& isa) {
            const KernelTable* kernels = find_table(isa);
            require(kernels != nullptr, "this CPU cannot run the kernel variant, or it was not built");
            return std::make_shared<Sampler>(std::move(pool), kernels);
          },
          nb::arg("pool"), nb::arg("isa"))
      .def(
          "sample",
          [](Sampler& sampler, Logits logits, Array<int32_t, 1> logit_row, Array<float, 1> temperature, Array<int32_t, 1> top_k,
             Array<float, 1> top_p, Array<float, 1> min_p, Array<float, 1> repetition, Array<float, 1> presence,
             Array<float, 1> frequency, Array<uint64_t, 1> seed, Array<int32_t, 1> choice, Array<int32_t, 1> position,
             Array<int32_t, 1> history, Array<int64_t, 1> history_start, Array<int32_t, 1> num_prompt,
             Array<int32_t, 1> bias_ids, Array<float, 1> bias_values, Array<int64_t, 1> bias_start,
             Array<int32_t, 1> top_logprobs, Array<int32_t, 1> mask_row, Array<int32_t, 2> masks, OutArray<int32_t, 1> token, OutArray<bool, 1> is_finite, OutArray<float, 1> logprob, OutArray<int32_t, 1> rank,
             OutArray<int32_t, 2> top_ids, OutArray<float, 2> top_values) {
            sample(sampler, logits,
                   {logit_row, temperature, top_k, top_p, min_p, repetition, presence, frequency, seed, choice, position, history,
                    history_start, num_prompt, bias_ids, bias_values, bias_start, top_logprobs, mask_row, masks},
                   {token, is_finite, logprob, rank, top_ids, top_values});
          })
      .def("given", [](Sampler& sampler, Logits logits, Array<int32_t, 1> logit_rows, Array<int32_t, 1> token_ids, int32_t top,
                       OutArray<int32_t, 1> token, OutArray<bool, 1> is_finite, OutArray<float, 1> logprob, OutArray<int32_t, 1> rank,
                       OutArray<int32_t, 2> top_ids, OutArray<float, 2> top_values) {
        given(sampler, logits, logit_rows, token_ids, top, {token, is_finite, logprob, rank, top_ids, top_values});
      });
}

}  // namespace octavo
