#include "backend/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "backend/candidates.h"
#include "backend/philox.h"
#include "backend/sampler_stages.h"
#include "base/check.h"
#include "base/error.h"

namespace ingot {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kLanes = 16;  // independent accumulators, so that compilers vectorise plain loops without -ffast-math
constexpr size_t kBlock = 1024;  // logits in one partial sum
constexpr size_t kGroup = 64;    // logits of which the largest is known, so that searches skip most groups

// [i, i + n) of the logits, or fewer at their end.
std::span<const float> part_of(std::span<const float> logits, size_t i, size_t n) {
  return logits.subspan(i, std::min(n, logits.size() - i));
}

// maxima [n_vocab / kGroup]: the largest logit of each group. Returns the largest of all.
float find_maxima(std::span<const float> logits, std::vector<float>& maxima) {
  maxima.clear();
  for (size_t i = 0; i < logits.size(); i += kGroup) maxima.push_back(largest_logit(part_of(logits, i, kGroup)));
  return largest_logit(maxima);
}

// The lowest id of the logit `top`, which is the largest; 0 if no logit equals it.
int32_t find_top(std::span<const float> logits, const std::vector<float>& maxima, float top) {
  const auto group = static_cast<size_t>(std::ranges::find(maxima, top) - maxima.begin());
  if (group == maxima.size()) return 0;
  const auto found = std::find(logits.begin() + static_cast<std::ptrdiff_t>(group * kGroup), logits.end(), top);
  return found == logits.end() ? 0 : static_cast<int32_t>(found - logits.begin());
}

// Sums at most kBlock weights, so that the float lanes keep their precision.
double sum_block(std::span<const float> logits, float top, float inverse_temperature) {
  const float* x = logits.data();
  const size_t n = logits.size();
  float weights[kBlock];
  for (size_t i = 0; i < n; ++i) weights[i] = weight(x[i], top, inverse_temperature);
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] += weights[i + j];
  }
  for (; i < n; ++i) lanes[0] += weights[i];
  double sum = 0;
  for (float lane : lanes) sum += lane;
  return sum;
}

double sum_weights(std::span<const float> logits, float top) {
  double sum = 0;
  for (size_t i = 0; i < logits.size(); i += kBlock) {
    sum += sum_block(part_of(logits, i, kBlock), top, 1.0f);
  }
  return sum;
}

// Collects the candidates with a logit of at least `floor`, in order of id. maxima: of find_maxima().
void collect_from(std::span<const float> logits, const std::vector<float>& maxima, float floor,
                  std::vector<Candidate>& out) {
  out.clear();
  for (size_t group = 0; group < maxima.size(); ++group) {
    if (!(maxima[group] >= floor)) continue;
    const size_t end = std::min((group + 1) * kGroup, logits.size());
    for (size_t i = group * kGroup; i < end; ++i)
      if (logits[i] >= floor) out.push_back({logits[i], static_cast<int32_t>(i)});
  }
}

// Collects the k likeliest candidates, in no order. The k-th largest of the groups' maxima is a floor: k logits are at
// least as large.
void collect_top(std::span<const float> logits, size_t k, SamplerScratch& scratch) {
  float floor = std::numeric_limits<float>::lowest();
  if (std::vector<float>& sorted = scratch.sorted_maxima; scratch.maxima.size() > k) {
    sorted.assign(scratch.maxima.begin(), scratch.maxima.end());
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(k - 1), sorted.end(),
                     std::greater<>());
    floor = std::max(floor, sorted[k - 1]);
  }
  std::vector<Candidate>& out = scratch.candidates;
  collect_from(logits, scratch.maxima, floor, out);
  if (out.size() <= k) return;
  std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(k - 1), out.end(), likelier);
  out.resize(k);
}

bool uses_top_k(const SamplingParams& params, size_t n_vocab) {
  return params.top_k > 0 && static_cast<size_t>(params.top_k) < n_vocab;
}
bool truncates(const SamplingParams& params, size_t n_vocab) {
  return uses_top_k(params, n_vocab) || params.typical_p < 1 || params.top_p < 1 || params.min_p > 0;
}

// Sets scratch.candidates to the tokens that remain after the truncations, and top to their largest logit. Reads
// scratch.maxima.
void truncate(std::span<const float> logits, float& top, const SamplingParams& params, SamplerScratch& scratch) {
  const size_t n = logits.size();
  std::vector<Candidate>& candidates = scratch.candidates;
  const bool top_k = uses_top_k(params, n);
  double total = 0;  // of the whole row, if top-p needs it
  if (top == kInfinity) {
    collect_from(logits, scratch.maxima, top, candidates);
    for (Candidate& c : candidates) c.logit = top = 0;
    if (top_k && candidates.size() > static_cast<size_t>(params.top_k)) candidates.resize(params.top_k);
  } else if (top_k) {
    collect_top(logits, params.top_k, scratch);
  } else if (params.typical_p < 1) {
    collect_from(logits, scratch.maxima, std::numeric_limits<float>::lowest(), candidates);
  } else if (params.top_p < 1) {
    // Tokens below (1 - p) / n have less than 1 - p in total, so the other tokens have p. The floor is half of (1 - p)
    // / n, to allow for rounding. Tokens that min-p drops need not be sorted for top-p.
    total = sum_weights(logits, top);
    const double least = 0.5 * (1.0 - static_cast<double>(params.top_p)) * total / static_cast<double>(n);
    const float floor = std::max(static_cast<float>(std::log(least)), std::log(params.min_p));
    collect_from(logits, scratch.maxima, top + floor, candidates);
  } else {
    collect_from(logits, scratch.maxima, top + std::log(params.min_p), candidates);
  }

  if (params.typical_p < 1) top = keep_typical(candidates, top, params.typical_p);
  if (params.top_p < 1) keep_top_p(candidates, top, params.top_p, total);
  if (params.min_p > 0) keep_min_p(candidates, top, params.min_p);
}

// Like draw_candidate, but over a whole row in two levels: finds the block that holds the target, then the token in the
// block.
int32_t draw_any(std::span<const float> logits, float top, float inverse_temperature, double u,
                 std::vector<double>& sums) {
  sums.clear();
  double total = 0;
  for (size_t i = 0; i < logits.size(); i += kBlock) {
    sums.push_back(sum_block(part_of(logits, i, kBlock), top, inverse_temperature));
    total += sums.back();
  }
  double target = u * total;
  size_t block = 0;
  while (block + 1 < sums.size() && target >= sums[block]) target -= sums[block++];
  while (sums[block] == 0) --block;  // rounding left the target past the last block that has any weight
  const size_t end = std::min((block + 1) * kBlock, logits.size());
  size_t last = 0;
  double mass = 0;
  for (size_t i = block * kBlock; i < end; ++i) {
    const float w = weight(logits[i], top, inverse_temperature);
    mass += w;
    if (w > 0) last = i;
    if (mass > target) break;
  }
  return static_cast<int32_t>(last);
}

void apply_penalties(std::vector<float>& logits, const SampleRow& row, std::vector<int32_t>& counts) {
  const SamplingParams& params = *row.params;
  std::span<const int32_t> seen = row.history;
  if (params.penalty_window >= 0 && seen.size() > static_cast<size_t>(params.penalty_window)) {
    seen = seen.last(params.penalty_window);
  }
  for (int32_t token : seen) {
    CHECK(token >= 0 && static_cast<size_t>(token) < logits.size());
    ++counts[token];
  }
  for (int32_t token : seen) {
    const int count = std::exchange(counts[token], 0);
    if (count == 0) continue;
    float& logit = logits[token];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    logit -= params.presence_penalty + static_cast<float>(count) * params.frequency_penalty;
  }
}

bool has_penalties(const SamplingParams& params) {
  return params.penalty_window != 0 &&
         (params.repetition_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0);
}

constexpr std::array<uint32_t, 32> kBits = [] {
  std::array<uint32_t, 32> bits{};
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = uint32_t{1} << i;
  return bits;
}();

// Copies the logits of tokens that the mask allows, and writes -infinity for the others. Reads the mask word by word,
// because most words have all bits set or none. Compilers vectorise the loop over kBits.
void copy_allowed(std::span<const float> raw, const uint32_t* mask, float* logits) {
  size_t i = 0;
  for (; i + kBits.size() <= raw.size(); i += kBits.size()) {
    const uint32_t allowed = *mask++;
    float* p = logits + i;
    if (allowed == 0) {
      std::fill_n(p, kBits.size(), -kInfinity);
      continue;
    }
    std::copy_n(raw.data() + i, kBits.size(), p);
    if (allowed == ~uint32_t{0}) continue;
    for (size_t j = 0; j < kBits.size(); ++j) p[j] = (allowed & kBits[j]) != 0 ? p[j] : -kInfinity;
  }
  for (size_t j = 0; i + j < raw.size(); ++j) logits[i + j] = (*mask & kBits[j]) != 0 ? raw[i + j] : -kInfinity;
}

// The mask comes first, because no later addition changes -infinity.
void copy_allowed(std::span<const float> raw, const SampleRow& row, std::vector<float>& logits) {
  if (row.mask != nullptr) return copy_allowed(raw, row.mask, logits.data());
  std::copy(raw.begin(), raw.end(), logits.begin());
}

void change_logits(std::vector<float>& logits, const SampleRow& row, std::vector<int32_t>& counts) {
  if (has_penalties(*row.params)) apply_penalties(logits, row, counts);
  for (const auto& [token, bias] : row.params->logit_bias) {
    CHECK(token >= 0 && static_cast<size_t>(token) < logits.size());
    logits[token] = bias == -kInfinity ? -kInfinity : logits[token] + bias;
  }
}

// Returns the row after penalties, bias and mask, or `raw` if none of them apply.
std::span<const float> adjusted(std::span<const float> raw, const SampleRow& row, SamplerScratch& scratch) {
  const SamplingParams& params = *row.params;
  if (!has_penalties(params) && params.logit_bias.empty() && row.mask == nullptr) return raw;
  copy_allowed(raw, row, scratch.logits);
  change_logits(scratch.logits, row, scratch.counts);
  return std::span(scratch.logits).first(raw.size());
}

int32_t draw(std::span<const float> logits, float top, const SampleRow& row, SamplerScratch& scratch) {
  const float inverse_temperature = 1.0f / row.params->temperature;
  const double u = uniform_draw(row.params->seed, static_cast<uint64_t>(row.position));
  if (!truncates(*row.params, logits.size())) return draw_any(logits, top, inverse_temperature, u, scratch.block_sums);
  truncate(logits, top, *row.params, scratch);
  if (scratch.candidates.size() <= kBlock) return draw_candidate(scratch.candidates, top, inverse_temperature, u);
  // For many candidates, a row is cheaper than sorting by id.
  std::fill(scratch.logits.begin(), scratch.logits.end(), -kInfinity);
  for (const Candidate& c : scratch.candidates) scratch.logits[c.id] = c.logit;
  return draw_any(scratch.logits, top, inverse_temperature, u, scratch.block_sums);
}

void add_logprobs(Sampled& result, std::span<const float> raw, int n_top, SamplerScratch& scratch) {
  const float top = find_maxima(raw, scratch.maxima);
  const double log_total = std::log(sum_weights(raw, top));
  const auto logprob = [&](float logit) {
    if (!(logit > -kInfinity)) return -kInfinity;
    return logit == top ? static_cast<float>(-log_total)
                        : static_cast<float>(static_cast<double>(logit) - top - log_total);
  };
  result.logprob = logprob(raw[result.token]);
  if (n_top == 0) return;
  collect_top(raw, n_top, scratch);
  std::sort(scratch.candidates.begin(), scratch.candidates.end(), likelier);
  result.top.reserve(scratch.candidates.size());
  for (const Candidate& c : scratch.candidates) result.top.push_back({c.id, logprob(c.logit)});
}

// The likeliest tokens, for beams. Penalties and biases change log-probabilities.
Sampled candidates_of(std::span<const float> raw, const SampleRow& row, SamplerScratch& scratch) {
  const float top = find_maxima(raw, scratch.maxima);
  if (!(top > -kInfinity) || top == kInfinity) return {.token = kNoToken};
  const double log_total = top + std::log(sum_weights(raw, top));
  copy_allowed(raw, row, scratch.logits);
  for (float& logit : scratch.logits) logit = static_cast<float>(static_cast<double>(logit) - log_total);
  change_logits(scratch.logits, row, scratch.counts);
  const std::span<const float> logprobs = std::span(scratch.logits).first(raw.size());
  find_maxima(logprobs, scratch.maxima);
  collect_top(logprobs, static_cast<size_t>(row.params->n_candidates), scratch);
  std::sort(scratch.candidates.begin(), scratch.candidates.end(), likelier);
  Sampled result{.token = kNoToken};
  result.top.reserve(scratch.candidates.size());
  for (const Candidate& c : scratch.candidates) result.top.push_back({c.id, c.logit});
  if (!result.top.empty()) result.token = result.top[0].token, result.logprob = result.top[0].logprob;
  return result;
}

}  // namespace

SamplerScratch::SamplerScratch(int n_vocab) : logits(n_vocab), counts(n_vocab) {
  candidates.reserve(n_vocab);
  block_sums.reserve(n_vocab / kBlock + 1);
  for (std::vector<float>* groups : {&maxima, &sorted_maxima}) groups->reserve(n_vocab / kGroup + 1);
}

float largest_logit(std::span<const float> x) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -kInfinity);
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  }
  for (; i < x.size(); ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  static_assert(kLanes == 16);
  for (size_t j = 0; j < 8; ++j) lanes[j] = lanes[j + 8] > lanes[j] ? lanes[j + 8] : lanes[j];
  for (size_t j = 0; j < 4; ++j) lanes[j] = lanes[j + 4] > lanes[j] ? lanes[j + 4] : lanes[j];
  return std::max({lanes[0], lanes[1], lanes[2], lanes[3]});
}

double log_sum_exp(std::span<const float> logits) {
  const float top = largest_logit(logits);
  return top == -kInfinity ? -kInfinity : top + std::log(sum_weights(logits, top));
}

int32_t argmax(std::span<const float> logits) {
  if (logits.empty()) throw Error("argmax: no logits to choose from");
  float best = -kInfinity;
  size_t first = 0;  // of the block with the best
  for (size_t i = 0; i < logits.size(); i += kBlock) {
    if (const float largest = largest_logit(part_of(logits, i, kBlock)); largest > best) best = largest, first = i;
  }
  const auto found = std::find(logits.begin() + static_cast<std::ptrdiff_t>(first), logits.end(), best);
  return found == logits.end() ? 0 : static_cast<int32_t>(found - logits.begin());
}

Sampled sample_row(std::span<const float> raw, const SampleRow& row, SamplerScratch& scratch) {
  CHECK(row.params != nullptr);
  CHECK_LE(raw.size(), scratch.logits.size());
  const SamplingParams& params = *row.params;
  if (params.n_candidates > 0) return candidates_of(raw, row, scratch);
  if (needs_stages(params)) {
    Sampled drawn{.token = draw_by_stages(raw, row, scratch)};
    if (drawn.token != kNoToken && params.n_logprobs >= 0) add_logprobs(drawn, raw, params.n_logprobs, scratch);
    return drawn;
  }
  const std::span<const float> logits = adjusted(raw, row, scratch);
  const bool greedy = params.temperature == 0;
  const bool may_forbid = row.mask != nullptr || !params.logit_bias.empty();

  Sampled result;
  if (greedy || !truncates(params, logits.size())) {
    result.token = argmax(logits);
  } else {
    result.token = find_top(logits, scratch.maxima, find_maxima(logits, scratch.maxima));
  }
  const float top = logits[result.token];
  if (!(top > -kInfinity) && (may_forbid || !greedy)) return {.token = kNoToken};
  if (!greedy) result.token = draw(logits, top, row, scratch);
  if (params.n_logprobs >= 0) add_logprobs(result, raw, params.n_logprobs, scratch);
  return result;
}

Sampled draw_row(std::span<const float> logits, const SampleRow& row, SamplerScratch& scratch) {
  if (row.unwanted) return {};
  Sampled drawn = sample_row(logits, row, scratch);
  if (drawn.token != kNoToken && !(logits[drawn.token] > -kInfinity)) drawn.token = kNoToken;
  return drawn;
}

}  // namespace ingot
