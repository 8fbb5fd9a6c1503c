#include "backend/route.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

namespace ingot {
namespace {

std::vector<float> scores_of(std::span<const float> logits, Scoring scoring) {
  std::vector<float> scores(logits.begin(), logits.end());
  if (scoring == Scoring::kSigmoid) {
    for (float& s : scores) s = 1.0f / (1.0f + std::exp(-s));
    return scores;
  }
  const float top = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (float& s : scores) sum += s = std::exp(s - top);
  for (float& s : scores) s = static_cast<float>(s / sum);
  return scores;
}

// Excludes the experts outside the best groups.
void keep_best_groups(std::vector<float>& choice, const RouteArgs& a) {
  const int64_t size = static_cast<int64_t>(choice.size()) / a.n_groups;
  const int64_t n_counted = std::min<int64_t>(a.bias ? 2 : 1, size);
  std::vector<float> worth(a.n_groups);
  for (int g = 0; g < a.n_groups; ++g) {
    std::vector<float> group(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::partial_sort(group.begin(), group.begin() + n_counted, group.end(), std::greater<>());
    worth[g] = std::accumulate(group.begin(), group.begin() + n_counted, 0.0f);
  }
  std::vector<int> order(a.n_groups);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int x, int y) { return worth[x] > worth[y]; });
  for (int i = a.n_groups_used; i < a.n_groups; ++i)
    std::fill_n(choice.begin() + order[i] * size, size, -std::numeric_limits<float>::infinity());
}

}  // namespace

// Each round excludes the experts chosen before. The scores of the others are compared with the best that is left.
static void mix_sparsely(int32_t* ids, float* weights, std::span<const float> logits, const RouteArgs& a) {
  std::vector<bool> is_chosen(logits.size());
  for (int i = 0; i < a.n_used; ++i) {
    int32_t best = -1;
    for (int32_t e = 0; e < static_cast<int32_t>(logits.size()); ++e)
      if (!is_chosen[e] && (best < 0 || logits[e] > logits[best])) best = e;
    double sum = 0;
    for (size_t e = 0; e < logits.size(); ++e) {
      const float distance = (logits[best] - logits[e]) / std::max(std::fabs(logits[e]), logits[best]);
      if (!is_chosen[e] && !(distance > 2 * kMixerJitter)) sum += std::exp(logits[e] - logits[best]);
    }
    is_chosen[best] = true;
    ids[i] = a.own_id(best);
    weights[i] = ids[i] < 0 ? 0.0f : static_cast<float>(a.scale / sum);
  }
}

void route_token(int32_t* ids, float* weights, std::span<const float> logits, const RouteArgs& a) {
  if (a.scoring == Scoring::kSparseMixer) return mix_sparsely(ids, weights, logits, a);
  const std::vector<float> scores = scores_of(logits, a.scoring);
  std::vector<float> choice = scores;
  if (a.bias)
    for (size_t i = 0; i < choice.size(); ++i) choice[i] += a.bias.f32()[i];
  if (a.n_groups_used < a.n_groups) keep_best_groups(choice, a);
  std::vector<int32_t> order(choice.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + a.n_used, order.end(),
                    [&](int32_t x, int32_t y) { return choice[x] != choice[y] ? choice[x] > choice[y] : x < y; });
  double sum = 0;
  for (int i = 0; i < a.n_used; ++i) {
    ids[i] = order[i];
    sum += weights[i] = scores[order[i]];
  }
  const double factor = a.normalize ? a.scale / std::max(sum, 1e-20) : a.scale;
  for (int i = 0; i < a.n_used; ++i) {
    const double own = a.expert_scale ? factor * a.expert_scale.f32()[ids[i]] : factor;
    ids[i] = a.own_id(ids[i]);
    weights[i] = ids[i] < 0 ? 0.0f : static_cast<float>(weights[i] * own);
  }
}

}  // namespace ingot
