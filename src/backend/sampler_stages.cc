#include "backend/sampler_stages.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backend/candidates.h"
#include "backend/philox.h"
#include "base/check.h"

namespace ingot {
namespace {

using enum SamplerStage;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kXtcStream = 1;  // of uniform_draw(); the draw of the token has stream 0
constexpr std::array kDefaultOrder = {kPenalties, kDry,  kTopNSigma, kTopK,       kTypical,
                                      kTopP,      kMinP, kXtc,       kTemperature};

// The draw of one row.
struct Draw {
  const SampleRow& row;
  const SamplingParams& params;
  std::vector<Candidate>& candidates;
  std::vector<int32_t>& counts;  // [n_vocab]: zero between stages

  void apply(SamplerStage stage);
  void penalize();
  void add_dry();
  void add_bias();
  void keep_n_sigma();
  void keep_top_k();
  void remove_likely();
  void scale();
  void keep_unsurprising();

  float top() const { return std::min_element(candidates.begin(), candidates.end(), likelier)->logit; }
};

bool allows(const uint32_t* bits, size_t i) { return bits == nullptr || (bits[i / 32] >> (i % 32) & 1) != 0; }

// The last `window` tokens; all, if it is negative.
std::span<const int32_t> last_of(std::span<const int32_t> tokens, int window) {
  const bool is_cut = window >= 0 && tokens.size() > static_cast<size_t>(window);
  return is_cut ? tokens.last(static_cast<size_t>(window)) : tokens;
}

void Draw::penalize() {
  const std::span<const int32_t> seen = last_of(row.history, params.penalty_window);
  for (const int32_t token : seen) ++counts[token];
  for (Candidate& c : candidates) {
    const int count = counts[c.id];
    if (count == 0) continue;
    c.logit = c.logit > 0 ? c.logit / params.repetition_penalty : c.logit * params.repetition_penalty;
    c.logit -= params.presence_penalty + static_cast<float>(count) * params.frequency_penalty;
  }
  for (const int32_t token : seen) counts[token] = 0;
}

// For each k: how many tokens at the end of `seen` equal the tokens that end k tokens earlier, at most `max_run` (Z
// algorithm, from the end).
std::vector<int> repeated_runs(std::span<const int32_t> seen, int max_run) {
  const int n = static_cast<int>(seen.size());
  const auto at = [&](int k) { return seen[static_cast<size_t>(n - 1 - k)]; };
  std::vector<int> runs(static_cast<size_t>(n), 0);
  for (int k = 1, low = 0, high = 0; k < n; ++k) {
    int run = k < high ? std::min(runs[static_cast<size_t>(k - low)], high - k) : 0;
    while (k + run < n && at(run) == at(k + run)) ++run;
    if (k + run > high) low = k, high = k + run;
    runs[static_cast<size_t>(k)] = run;
  }
  for (int& run : runs) run = std::min(run, max_run);
  return runs;
}

void Draw::add_dry() {
  if (params.dry_multiplier == 0) return;
  const std::span<const int32_t> seen = last_of(row.history, params.dry_window);
  const auto is_breaker = [&](int32_t token) {
    return params.dry_breakers && allows(params.dry_breakers->data(), static_cast<size_t>(token));
  };
  const auto breaker = std::find_if(seen.rbegin(), seen.rend(), is_breaker);
  const std::vector<int> runs = repeated_runs(seen, static_cast<int>(breaker - seen.rbegin()));
  for (size_t k = 1; k < runs.size(); ++k) {  // counts: the longest run before each token, plus 1
    int32_t& longest = counts[seen[seen.size() - k]];
    if (runs[k] >= params.dry_allowed_length) longest = std::max(longest, runs[k] + 1);
  }
  constexpr float kMaxPenalty = 1e30f;  // so that the logit stays finite
  for (Candidate& c : candidates) {
    if (counts[c.id] == 0) continue;
    const auto excess = static_cast<float>(counts[c.id] - 1 - params.dry_allowed_length);
    c.logit -= std::min(kMaxPenalty, params.dry_multiplier * std::pow(params.dry_base, excess));
  }
  for (const int32_t token : seen) counts[token] = 0;
}

void Draw::add_bias() {
  for (const auto& [token, bias] : params.logit_bias) {
    const auto found = std::ranges::lower_bound(candidates, token, {}, &Candidate::id);
    if (found != candidates.end() && found->id == token) found->logit = bias == -kInfinity ? bias : found->logit + bias;
  }
  std::erase_if(candidates, [](const Candidate& c) { return !(c.logit > -kInfinity); });
  if (candidates.empty() || top() < kInfinity) return;
  std::erase_if(candidates, [](const Candidate& c) { return c.logit < kInfinity; });
  for (Candidate& c : candidates) c.logit = 0;  // infinite logits share all probability
}

void Draw::keep_n_sigma() {
  double sum = 0, squares = 0;
  for (const Candidate& c : candidates) sum += c.logit;
  const double mean = sum / static_cast<double>(candidates.size());
  for (const Candidate& c : candidates) squares += (c.logit - mean) * (c.logit - mean);
  const double floor = top() - params.top_n_sigma * std::sqrt(squares / static_cast<double>(candidates.size()));
  std::erase_if(candidates, [floor](const Candidate& c) { return c.logit < floor; });
}

void Draw::keep_top_k() {
  const auto k = static_cast<size_t>(params.top_k);
  if (candidates.size() <= k) return;
  std::nth_element(candidates.begin(), candidates.begin() + (params.top_k - 1), candidates.end(), likelier);
  candidates.resize(k);
}

// XTC. With a threshold above 0.5, at most one token is likely, so none is removed.
void Draw::remove_likely() {
  if (params.xtc_threshold > 0.5f) return;
  if (uniform_draw(params.seed, static_cast<uint64_t>(row.position), kXtcStream) >= params.xtc_probability) return;
  const float best = top();
  const double floor = params.xtc_threshold * mass_of(candidates, best);
  const auto is_likely = [&](const Candidate& c) { return weight(c.logit, best, 1) >= floor; };
  const auto n_likely = std::ranges::count_if(candidates, is_likely);
  if (n_likely < 2) return;
  std::nth_element(candidates.begin(), candidates.begin() + (n_likely - 1), candidates.end(), likelier);
  candidates.erase(candidates.begin(), candidates.begin() + (n_likely - 1));
}

// The temperature; at 0, only the likeliest token stays.
void Draw::scale() {
  float temperature = params.temperature;
  const float best = top();
  if (params.dynatemp_range > 0 && candidates.size() > 1) {
    const double total = mass_of(candidates, best);
    double entropy = 0;
    for (const Candidate& c : candidates)
      if (const double p = weight(c.logit, best, 1) / total; p > 0) entropy -= p * std::log(p);
    const double share = entropy / std::log(static_cast<double>(candidates.size()));
    const double low = std::max(0.0f, temperature - params.dynatemp_range), high = temperature + params.dynatemp_range;
    temperature = static_cast<float>(low + (high - low) * std::pow(std::max(0.0, share), params.dynatemp_exponent));
  }
  if (temperature > 0) {
    for (Candidate& c : candidates) c.logit /= temperature;
  } else {
    candidates.assign(1, *std::min_element(candidates.begin(), candidates.end(), likelier));
  }
}

// Mirostat: drops tokens whose surprise in bits is above mu, except the likeliest.
void Draw::keep_unsurprising() {
  const float best = top();
  const double least = std::exp2(-double{*row.mirostat_mu}) * mass_of(candidates, best);
  std::erase_if(candidates, [&](const Candidate& c) { return c.logit < best && weight(c.logit, best, 1) < least; });
}

void Draw::apply(SamplerStage stage) {
  if (candidates.empty()) return;
  switch (stage) {
    case kPenalties: return penalize();
    case kDry: return add_dry();
    case kTemperature: return scale();
    default: break;
  }
  if (params.mirostat != 0) return;
  switch (stage) {
    case kTopNSigma: return params.top_n_sigma > 0 ? keep_n_sigma() : void();
    case kTopK: return params.top_k > 0 ? keep_top_k() : void();
    case kTypical: return params.typical_p < 1 ? void(keep_typical(candidates, top(), params.typical_p)) : void();
    case kTopP: return params.top_p < 1 ? keep_top_p(candidates, top(), params.top_p) : void();
    case kMinP: return params.min_p > 0 ? keep_min_p(candidates, top(), params.min_p) : void();
    default: return remove_likely();
  }
}

void follow_surprise(const Draw& draw, int32_t token) {  // after draw_candidate(): logits are weights
  double total = 0, own = 0;
  for (const Candidate& c : draw.candidates) {
    total += c.logit;
    if (c.id == token) own = c.logit;
  }
  const double surprise = own > 0 ? std::log2(total / own) : 0;
  *draw.row.mirostat_mu -= draw.params.mirostat_eta * static_cast<float>(surprise - draw.params.mirostat_tau);
}

}  // namespace

bool needs_stages(const SamplingParams& p) {
  return p.dry_multiplier != 0 || p.top_n_sigma > 0 || p.xtc_probability > 0 || p.dynatemp_range > 0 ||
         p.mirostat != 0 || p.n_candidates > 0 || !p.stages.empty();
}

int32_t draw_by_stages(std::span<const float> logits, const SampleRow& row, SamplerScratch& scratch) {
  const SamplingParams& params = *row.params;
  CHECK(params.mirostat == 0 || row.mirostat_mu != nullptr);
  for (const int32_t token : row.history) CHECK(token >= 0 && static_cast<size_t>(token) < logits.size());
  Draw draw{row, params, scratch.candidates, scratch.counts};
  draw.candidates.clear();
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > -kInfinity && allows(row.mask, i)) draw.candidates.push_back({logits[i], static_cast<int32_t>(i)});

  const std::span<const SamplerStage> order = params.stages.empty() ? std::span<const SamplerStage>(kDefaultOrder)
                                                                    : std::span<const SamplerStage>(params.stages);
  const auto first = std::ranges::find_if(order, [](SamplerStage s) { return s != kPenalties && s != kDry; });
  std::for_each(order.begin(), first, [&](SamplerStage stage) { draw.apply(stage); });
  draw.add_bias();
  std::for_each(first, order.end(), [&](SamplerStage stage) { draw.apply(stage); });
  if (draw.candidates.empty()) return kNoToken;
  if (params.mirostat != 0) draw.keep_unsurprising();
  const double u = uniform_draw(params.seed, static_cast<uint64_t>(row.position));
  const int32_t token = draw_candidate(draw.candidates, draw.top(), 1.0f, u);
  if (params.mirostat != 0) follow_surprise(draw, token);
  return token;
}

}  // namespace ingot
