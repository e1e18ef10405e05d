// Choosing one row's token, and the log-probabilities of the raw logits. Included inside the namespace of an ISA unit, after simd.
//
// The order of candidates is falling logit (after bias and penalties), then rising id. Weights are exp((logit - max) /
// temperature) in fixed point with kWeightBits fraction bits: their sums are exact, so a prefix sum does not depend on how the
// prefix was found, and no sort is needed. A threshold (k tokens, a probability) is located by radix selection: histograms over
// the digits of the logit's ordered bits, O(vocabulary) whatever the logits are.
// Usually a short head of the order decides everything; `choose` tries heads of growing depth and falls back to all tokens.
//
// NaN counts as -inf, +inf as the largest float, -0 as +0. When nothing is finite the lowest id is taken.

constexpr int kWeightBits = 42;  // sums of up to 2^21 weights of at most 1 fit in 63 bits
constexpr float kLargestFloat = 3.402823466e38f;
constexpr float kNegativeInfinity = -__builtin_inff();

// Candidates in rising id: entry i of each array belongs together. All arrays lie in SampleArgs.scratch.
struct Candidates {
  const float* logits;  // [vocab], by id
  int32_t* ids;
  float* weights;
  int32_t* work;  // positions in ids, for the selection
  int32_t count;
};

inline float scrub(float x) {
  const float y = (x < kLargestFloat ? x : kLargestFloat) + 0.0f;
  return x == x ? y : kNegativeInfinity;
}

inline F16x scrub(F16x x) {
  const F16x y = add(min(x, broadcast(kLargestFloat)), zero());
  return select(equal(x, x), y, broadcast(kNegativeInfinity));
}

// n <= 16 values from p; lanes from n on hold -inf.
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

// Uniform 53-bit integer from Philox4x32-10 (Salmon et al., 2011): key = seed, counter = (choice, position, 0, 0);
// the result is bits 63..11 of output word 1 : output word 0.
uint64_t noise53(uint64_t seed, int32_t choice, int32_t position) {
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  uint32_t c0 = static_cast<uint32_t>(choice), c1 = static_cast<uint32_t>(position), c2 = 0, c3 = 0;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return (uint64_t{c1} << 32 | c0) >> 11;
}

// ---- log-probabilities ----

float largest_logit(const float* logits, int32_t vocab) {
  F16x largest = broadcast(kNegativeInfinity);
  for (int32_t i = 0; i < vocab; i += 16) {
    largest = max(largest, scrub(load_or_masked(logits + i, lanes_left(i, vocab))));
  }
  return reduce_max(largest);
}

// Sum of exp((logit - top) / temperature) in float64: sixteen lanes, each in rising id, then lanes in order.
double sum_of_exponentials(const float* logits, int32_t vocab, float top, float temperature) {
  double lanes[16] = {};
  float terms[16];
  for (int32_t i = 0; i < vocab; i += 16) {
    const F16x shifted = sub(scrub(load_or_masked(logits + i, lanes_left(i, vocab))), broadcast(top));
    store(terms, exp(div(shifted, broadcast(temperature))));
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

// ---- bias and penalties ----

// Penalties of every distinct token of the history, in O(history): counts has one slot per id and needs no clearing.
void apply_penalties(const SampleArgs& args, float* logits, int32_t* counts) {
  constexpr int32_t kDone = -1;
  const uint32_t vocab = static_cast<uint32_t>(args.vocab);
  for (int64_t i = 0; i < args.history_len; ++i) {
    if (static_cast<uint32_t>(args.history[i]) < vocab) {
      counts[args.history[i]] = 0;
    }
  }
  for (int64_t i = args.num_prompt; i < args.history_len; ++i) {
    if (static_cast<uint32_t>(args.history[i]) < vocab) {
      ++counts[args.history[i]];
    }
  }
  for (int64_t i = 0; i < args.history_len; ++i) {
    const int32_t id = args.history[i];
    if (static_cast<uint32_t>(id) >= vocab || counts[id] == kDone) {
      continue;
    }
    float value = logits[id];
    value = scrub(value > 0.0f ? value / args.repetition : value * args.repetition);
    value -= args.frequency * static_cast<float>(counts[id]);
    value -= counts[id] > 0 ? args.presence : 0.0f;
    logits[id] = scrub(value);
    counts[id] = kDone;
  }
}

// Scrubbed logits with bias and penalties. work holds vocab slots.
void adjust_logits(const SampleArgs& args, float* logits, int32_t* work) {
  for (int32_t i = 0; i < args.vocab; i += 16) {
    const int32_t n = lanes_left(i, args.vocab);
    store_n(logits + i, scrub(load_n(args.logits + i, n)), n);
  }
  for (int64_t i = 0; i < args.bias_len; ++i) {
    const int32_t id = args.bias_ids[i];
    if (static_cast<uint32_t>(id) < static_cast<uint32_t>(args.vocab)) {
      logits[id] = scrub(logits[id] + args.bias_values[i]);
    }
  }
  if (args.history_len > 0) {
    apply_penalties(args, logits, work);
  }
}

// ---- selection ----

// Ordered bits: a larger float has a smaller key.
inline uint32_t falling_key(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
}

inline uint64_t fixed_weight(float weight) {
  return static_cast<uint64_t>(static_cast<int64_t>(weight * static_cast<float>(int64_t{1} << kWeightBits)));
}

// Position in c.ids of the first candidate, in order, at which the running sum of weights (or of ones) reaches need.
// 1 <= need <= the sum over all candidates. Three stable passes over 11, 11 and 10 bits leave the equals in rising id.
int32_t find_threshold(const Candidates& c, uint64_t need, bool weighted) {
  constexpr int kShifts[3] = {21, 10, 0};
  constexpr uint32_t kBuckets = 2048;
  uint64_t sums[kBuckets];
  int32_t left = c.count;
  for (int32_t i = 0; i < left; ++i) {
    c.work[i] = i;
  }
  for (const int shift : kShifts) {
    const uint32_t mask = shift == 0 ? 1023u : kBuckets - 1;
    __builtin_memset(sums, 0, sizeof sums);
    for (int32_t i = 0; i < left; ++i) {
      const int32_t at = c.work[i];
      sums[falling_key(c.logits[c.ids[at]]) >> shift & mask] += weighted ? fixed_weight(c.weights[at]) : 1;
    }
    uint32_t digit = 0;
    while (digit < mask && sums[digit] < need) {
      need -= sums[digit++];
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < left; ++i) {
      const int32_t at = c.work[i];
      c.work[kept] = at;
      kept += (falling_key(c.logits[c.ids[at]]) >> shift & mask) == digit;
    }
    left = kept;
  }
  for (int32_t i = 0; i < left; ++i) {
    const uint64_t own = weighted ? fixed_weight(c.weights[c.work[i]]) : 1;
    if (own >= need) {
      return c.work[i];
    }
    need -= own;
  }
  return c.work[left - 1];
}

// Keep the candidates up to and including position `last`, in order.
void keep_until(Candidates& c, int32_t last) {
  const int32_t last_id = c.ids[last];
  const float last_logit = c.logits[last_id];
  int32_t kept = 0;
  for (int32_t i = 0; i < c.count; ++i) {
    const float logit = c.logits[c.ids[i]];
    if (logit > last_logit || (logit == last_logit && c.ids[i] <= last_id)) {
      c.ids[kept] = c.ids[i];
      c.weights[kept] = c.weights[i];
      ++kept;
    }
  }
  c.count = kept;
}

void keep_likely(Candidates& c, float min_weight) {
  int32_t kept = 0;
  for (int32_t i = 0; i < c.count; ++i) {
    if (c.weights[i] >= min_weight) {
      c.ids[kept] = c.ids[i];
      c.weights[kept] = c.weights[i];
      ++kept;
    }
  }
  c.count = kept;
}

void weigh(Candidates& c, float top, float temperature) {
  for (int32_t i = 0; i < c.count; i += 16) {
    const int32_t n = lanes_left(i, c.count);
    float lanes[16] = {};
    for (int32_t lane = 0; lane < n; ++lane) {
      lanes[lane] = c.logits[c.ids[i + lane]];
    }
    const F16x weights = exp(div(sub(load(lanes), broadcast(top)), broadcast(temperature)));
    store_n(c.weights + i, weights, n);
  }
}

uint64_t total_weight(const Candidates& c) {
  uint64_t total = 0;
  for (int32_t i = 0; i < c.count; ++i) {
    total += fixed_weight(c.weights[i]);
  }
  return total;
}

// The token, decided by the candidates with logit >= top - depth * temperature alone, or -1 when those do not decide it.
// everything: the fixed-point weight of all tokens. With an infinite depth the candidates are all tokens and always decide.
int32_t choose_within(const SampleArgs& args, Candidates& c, float top, float depth, uint64_t everything) {
  const float floor = top - depth * args.temperature;
  c.count = 0;
  for (int32_t i = 0; i < args.vocab; ++i) {
    c.ids[c.count] = i;
    c.count += c.logits[i] >= floor;
  }
  bool complete = c.count == args.vocab;  // no token outside c can still be kept
  if (args.top_k > 0 && args.top_k < args.vocab) {
    if (c.count < args.top_k) {
      return -1;
    }
    keep_until(c, find_threshold(c, static_cast<uint64_t>(args.top_k), false));
    complete = true;
  }
  weigh(c, top, args.temperature);
  uint64_t inside = total_weight(c);
  if (args.top_p < 1.0f) {
    const double total = static_cast<double>(complete ? inside : everything);
    const uint64_t wanted = static_cast<uint64_t>(__builtin_ceil(static_cast<double>(args.top_p) * total));
    const uint64_t need = wanted > 1 ? wanted : 1;
    if (inside < need && !complete) {
      return -1;
    }
    keep_until(c, find_threshold(c, need < inside ? need : inside, true));
    complete = true;
    inside = total_weight(c);
  }
  if (args.min_p > 0.0f) {
    if (!complete && args.min_p < 1.01f * reduce_max(exp(broadcast(-depth)))) {
      return -1;
    }
    keep_likely(c, args.min_p);
    complete = true;
    inside = total_weight(c);
  }
  const uint64_t total = complete ? inside : everything;
  __extension__ typedef unsigned __int128 Wide;
  const uint64_t drawn = static_cast<uint64_t>(static_cast<Wide>(noise53(args.seed, args.choice, args.position)) * total >> 53);
  if (drawn >= inside) {
    return -1;  // falls in the tail; cannot happen when complete, as drawn < total
  }
  return c.ids[find_threshold(c, drawn + 1, true)];
}

int32_t choose(const SampleArgs& args, float* logits, const Candidates& empty) {
  const float top = largest_logit(logits, args.vocab);
  if (args.temperature == 0.0f || args.top_k == 1 || top == kNegativeInfinity) {
    int32_t id = 0;
    while (id < args.vocab - 1 && logits[id] != top) {
      ++id;
    }
    return id;
  }
  uint64_t everything = 0;
  if (args.top_k <= 0 || args.top_k >= args.vocab) {
    const double scale = static_cast<double>(uint64_t{1} << kWeightBits);
    everything = static_cast<uint64_t>(sum_of_exponentials(logits, args.vocab, top, args.temperature) * scale);
  }
  Candidates c = empty;
  constexpr float kDepths[] = {8.0f, 16.0f};  // exp(-8) = 3e-4, exp(-16) = 1e-7
  for (const float depth : kDepths) {
    const int32_t token = choose_within(args, c, top, depth, everything);
    if (token >= 0) {
      return token;
    }
  }
  return choose_within(args, c, top, __builtin_inff(), everything);
}

// Semantics: octavo.ops.interface.Backend.sample and Backend.logprobs (given_token >= 0).
void sample(const SampleArgs& args) {
  int32_t token = args.given_token;
  if (token < 0) {
    float* const logits = args.scratch;
    float* const weights = logits + args.vocab;
    int32_t* const ids = reinterpret_cast<int32_t*>(weights + args.vocab);
    int32_t* const work = ids + args.vocab;
    adjust_logits(args, logits, work);
    token = choose(args, logits, Candidates{logits, ids, weights, work, 0});
  }
  *args.token = token;
  if (args.top_logprobs >= 0) {
    report_logprobs(args, token);
  }
}
