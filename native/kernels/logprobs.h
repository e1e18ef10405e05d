// Log-probabilities, ranks and the top of one row of raw logits. Included inside the namespace of an ISA unit, after simd.
//
// NaN counts as -inf, +inf as the largest float, -0 as +0.
#pragma once

constexpr float kLargestFloat = 3.402823466e38f;
constexpr float kNegativeInfinity = -__builtin_inff();

inline bool is_finite(float x) { return x - x == 0.0f; }

inline float scrub(float x) {
  const float y = (x < kLargestFloat ? x : kLargestFloat) + 0.0f;
  return x == x ? y : kNegativeInfinity;
}

inline F16x scrub(F16x x) {
  const F16x y = add(min(x, broadcast(kLargestFloat)), zero());
  return select(equal(x, x), y, broadcast(kNegativeInfinity));
}

// n <= 16 values from p; lanes from n on hold -inf (all of them when n <= 0).
inline F16x load_or_masked(const float* p, int32_t n) {
  if (n == 16) {
    return load(p);
  }
  float lanes[16];
  for (int32_t i = 0; i < 16; ++i) {
    lanes[i] = i < n ? p[i] : kNegativeInfinity;
  }
  return load(lanes);
}

inline int32_t lanes_left(int32_t i, int32_t n) {
  return n - i < 16 ? n - i : 16;
}

float largest_logit(const float* logits, int32_t vocab) {
  F16x largest = broadcast(kNegativeInfinity);
  for (int32_t i = 0; i < vocab; i += 16) {
    largest = max(largest, scrub(load_or_masked(logits + i, lanes_left(i, vocab))));
  }
  return reduce_max(largest);
}

// Lowest id whose logit is value, which must be finite and present.
int32_t first_equal(const float* logits, int32_t vocab, float value) {
  for (int32_t i = 0; i < vocab; i += 16) {
    const F16x chunk = scrub(load_or_masked(logits + i, lanes_left(i, vocab)));
    const uint32_t bits = mask_bits(equal(chunk, broadcast(value)));
    if (bits != 0) {
      return i + __builtin_ctz(bits);
    }
  }
  return 0;
}

// Sum of exp((logit - top) / temperature): four vectors pairwise in float32, then sixteen float64 lanes in rising id, then the
// lanes in order. Adding four at once keeps the conversions from dominating.
double sum_of_exponentials(const float* logits, int32_t vocab, float top, float temperature) {
  double lanes[16] = {};
  float terms[16];
  for (int32_t i = 0; i < vocab; i += 64) {
    F16x e[4];
    for (int32_t j = 0; j < 4; ++j) {
      const int32_t at = i + 16 * j;
      const F16x shifted = sub(scrub(load_or_masked(logits + at, lanes_left(at, vocab))), broadcast(top));
      e[j] = exp(div(shifted, broadcast(temperature)));
    }
    store(terms, add(add(e[0], e[1]), add(e[2], e[3])));
    for (int lane = 0; lane < 16; ++lane) {
      lanes[lane] += static_cast<double>(terms[lane]);
    }
  }
  double sum = 0.0;
  for (int lane = 0; lane < 16; ++lane) {
    sum += lanes[lane];
  }
  return sum;
}

// The `wanted` largest logits by falling value, then rising id; entries past the vocabulary get id -1.
void top_logits(const float* logits, int32_t vocab, int32_t wanted, int32_t* ids, float* values) {
  for (int32_t j = 0; j < wanted; ++j) {
    ids[j] = -1;
    values[j] = kNegativeInfinity;
  }
  int32_t count = 0;
  for (int32_t i = 0; i < vocab && wanted > 0; i += 16) {
    const F16x chunk = scrub(load_or_masked(logits + i, lanes_left(i, vocab)));
    if (count == wanted && mask_bits(less(broadcast(values[wanted - 1]), chunk)) == 0) {
      continue;
    }
    float lanes[16];
    store(lanes, chunk);
    for (int32_t lane = 0; lane < lanes_left(i, vocab); ++lane) {
      if (count == wanted && !(values[wanted - 1] < lanes[lane])) {
        continue;
      }
      int32_t j = count < wanted ? count++ : wanted - 1;
      for (; j > 0 && values[j - 1] < lanes[lane]; --j) {
        values[j] = values[j - 1];
        ids[j] = ids[j - 1];
      }
      values[j] = lanes[lane];
      ids[j] = i + lane;
    }
  }
}

// 1 + the number of tokens before `token` in the order of falling logit, then rising id.
int32_t rank_of(const float* logits, int32_t vocab, int32_t token) {
  const float value = scrub(logits[token]);
  int32_t rank = 1;
  for (int32_t i = 0; i < token; ++i) {
    rank += scrub(logits[i]) >= value;
  }
  for (int32_t i = token + 1; i < vocab; ++i) {
    rank += scrub(logits[i]) > value;
  }
  return rank;
}

void report_logprobs(const SampleArgs& args, int32_t token) {
  const float top = largest_logit(args.logits, args.vocab);
  if (top == kNegativeInfinity) {  // no distribution to speak of
    *args.logprob = kNegativeInfinity;
    *args.rank = rank_of(args.logits, args.vocab, token);
    top_logits(args.logits, args.vocab, args.top_logprobs, args.top_ids, args.top_values);
    return;
  }
  const double log_sum = __builtin_log(sum_of_exponentials(args.logits, args.vocab, top, 1.0f));
  const double top64 = static_cast<double>(top);
  *args.logprob = static_cast<float>(static_cast<double>(scrub(args.logits[token])) - top64 - log_sum);
  *args.rank = rank_of(args.logits, args.vocab, token);
  top_logits(args.logits, args.vocab, args.top_logprobs, args.top_ids, args.top_values);
  for (int32_t j = 0; j < args.top_logprobs; ++j) {
    args.top_values[j] = static_cast<float>(static_cast<double>(args.top_values[j]) - top64 - log_sum);
  }
}
