// Choosing one row's token. Included inside the namespace of an ISA unit, after simd.
//
// The order of candidates is falling logit (after bias and penalties), then rising id. Weights are exp((logit - max) /
// temperature) in fixed point with kWeightBits fraction bits: their sums are exact, so a prefix sum does not depend on how the
// prefix was found, and no sort is needed. A threshold (k tokens, a probability) is located by radix selection: histograms over
// the digits of the logit's ordered bits, O(vocabulary) whatever the logits are.
// Usually a short head of the order decides everything; `choose` tries heads of growing depth and falls back to all tokens.
// When nothing is finite the lowest id is taken.
#include "logprobs.h"

constexpr int kWeightBits = 42;  // sums of up to 2^21 weights of at most 1 fit in 63 bits

// Candidates in rising id: entry i of each array belongs together. All arrays lie in SampleArgs.scratch.
struct Candidates {
  const float* logits;  // [vocab], by id
  int32_t* ids;
  float* weights;
  int32_t* work;  // positions in ids, for the selection
  int32_t count;
  bool complete;        // no token outside can still be kept
  uint64_t everything;  // fixed-point weight of all tokens; needed while not complete
};

// Uniform 53-bit integer from Philox4x32-10 (Salmon et al., 2011): key = seed, counter = (position, choice, 0, 0);
// the result is bits 63..11 of output word 0 : output word 1.
uint64_t noise53(uint64_t seed, int32_t choice, int32_t position) {
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  uint32_t c0 = static_cast<uint32_t>(position), c1 = static_cast<uint32_t>(choice), c2 = 0, c3 = 0;
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
  return (uint64_t{c0} << 32 | c1) >> 11;
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
    value -= counts[id] > 0 ? args.presence : 0.0f;
    value -= args.frequency * static_cast<float>(counts[id]);
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

// Ids of the logits >= floor, rising; returns how many. With a floor of -inf that is all of them.
int32_t collect(const float* logits, int32_t vocab, float floor, int32_t* ids) {
  int32_t count = 0;
  for (int32_t i = 0; i < vocab; i += 16) {
    const int32_t n = lanes_left(i, vocab);
    uint32_t bits = mask_bits(less_equal(broadcast(floor), load_or_masked(logits + i, n))) & ((1u << n) - 1);
    for (; bits != 0; bits &= bits - 1) {
      ids[count++] = i + __builtin_ctz(bits);
    }
  }
  return count;
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

// The three filters return false when the candidates, a head of the order, do not decide them.
bool keep_top_k(const SampleArgs& args, Candidates& c) {
  if (args.top_k <= 0 || args.top_k >= args.vocab) {
    return true;
  }
  if (c.count < args.top_k) {
    return false;
  }
  keep_until(c, find_threshold(c, static_cast<uint64_t>(args.top_k), false));
  c.complete = true;
  return true;
}

bool keep_top_p(const SampleArgs& args, Candidates& c) {
  if (args.top_p >= 1.0f) {
    return true;
  }
  const uint64_t inside = total_weight(c);
  const double total = static_cast<double>(c.complete ? inside : c.everything);
  const uint64_t wanted = static_cast<uint64_t>(__builtin_ceil(static_cast<double>(args.top_p) * total));
  const uint64_t need = wanted > 1 ? wanted : 1;
  if (inside < need && !c.complete) {
    return false;
  }
  keep_until(c, find_threshold(c, need < inside ? need : inside, true));
  c.complete = true;
  return true;
}

// depth: no token outside the candidates weighs more than exp(-depth), up to rounding.
bool keep_min_p(const SampleArgs& args, Candidates& c, float depth) {
  if (args.min_p <= 0.0f) {
    return true;
  }
  if (!c.complete && args.min_p < 1.01f * reduce_max(exp(broadcast(-depth)))) {
    return false;
  }
  keep_likely(c, args.min_p);
  c.complete = true;
  return true;
}

// The first candidate whose running weight exceeds noise * total, or -1 when that lies beyond the candidates.
int32_t draw(const SampleArgs& args, const Candidates& c) {
  __extension__ typedef unsigned __int128 Wide;
  const uint64_t inside = total_weight(c);
  const uint64_t total = c.complete ? inside : c.everything;
  const uint64_t drawn = static_cast<uint64_t>(static_cast<Wide>(noise53(args.seed, args.choice, args.position)) * total >> 53);
  if (drawn >= inside) {
    return -1;  // never when complete, as drawn < total
  }
  return c.ids[find_threshold(c, drawn + 1, true)];
}

// The token, decided by the candidates with logit >= top - depth * temperature alone, or -1 when those do not decide it.
// With an infinite depth the candidates are all tokens, which always decide.
int32_t choose_within(const SampleArgs& args, Candidates& c, float top, float depth) {
  c.count = collect(c.logits, args.vocab, top - depth * args.temperature, c.ids);
  c.complete = c.count == args.vocab;
  if (!keep_top_k(args, c)) {
    return -1;
  }
  weigh(c, top, args.temperature);
  if (!keep_top_p(args, c) || !keep_min_p(args, c, depth)) {
    return -1;
  }
  return draw(args, c);
}

inline bool is_greedy(const SampleArgs& args) {
  return args.temperature == 0.0f || args.top_k == 1;
}

int32_t choose(const SampleArgs& args, const float* logits, const Candidates& empty) {
  const float top = largest_logit(logits, args.vocab);
  if (is_greedy(args) || top == kNegativeInfinity) {
    return top == kNegativeInfinity ? 0 : first_equal(logits, args.vocab, top);
  }
  Candidates c = empty;
  if (args.top_k <= 0 || args.top_k >= args.vocab) {
    const double scale = static_cast<double>(uint64_t{1} << kWeightBits);
    c.everything = static_cast<uint64_t>(sum_of_exponentials(logits, args.vocab, top, args.temperature) * scale);
  }
  constexpr float kDepths[] = {8.0f, 16.0f};  // exp(-8) = 3e-4, exp(-16) = 1e-7
  for (const float depth : kDepths) {
    const int32_t token = choose_within(args, c, top, depth);
    if (token >= 0) {
      return token;
    }
  }
  return choose_within(args, c, top, __builtin_inff());
}

// The logits with -inf for every id whose bit of the mask is not set.
void mask_logits(const SampleArgs& args, float* masked) {
  for (int32_t first = 0; first < args.vocab; first += 32) {
    const int32_t word = first / 32, n = args.vocab - first < 32 ? args.vocab - first : 32;
    const uint32_t bits = word < args.mask_words ? args.mask[word] : 0;
    for (int32_t i = 0; i < n; ++i) masked[first + i] = bits >> i & 1 ? args.logits[first + i] : kNegativeInfinity;
  }
}

// Semantics: octavo.ops.interface.Sampling.sample and Sampling.logprobs (given_token >= 0).
void sample(const SampleArgs& args) {
  if (args.mask != nullptr) {
    SampleArgs masked = args;
    float* const logits = args.scratch + int64_t{kSampleScratch - 1} * args.vocab;
    mask_logits(args, logits);
    masked.logits = logits;
    masked.mask = nullptr;
    return sample(masked);
  }
  int32_t token = args.given_token;
  if (token < 0) {
    float* const logits = args.scratch;
    float* const weights = logits + args.vocab;
    int32_t* const ids = reinterpret_cast<int32_t*>(weights + args.vocab);
    int32_t* const work = ids + args.vocab;
    const bool as_they_are = is_greedy(args) && args.bias_len == 0 && args.history_len == 0;   // no copy to adjust
    if (!as_they_are) adjust_logits(args, logits, work);
    token = choose(args, as_they_are ? args.logits : logits, Candidates{logits, ids, weights, work, 0, false, 0});
  }
  *args.token = token;
  *args.is_finite = is_finite(args.logits[token]);
  if (args.top_logprobs >= 0) {
    report_logprobs(args, token);
    *args.is_finite &= is_finite(*args.logprob);
  }
}
