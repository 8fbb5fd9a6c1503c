#include "backend/candidates.h"

#include <cmath>

namespace ingot {

double mass_of(std::span<const Candidate> candidates, float top) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += weight(c.logit, top, 1.0f);
  return sum;
}

namespace {

// Keeps the shortest prefix, in the order of `before`, that has the target mass. Halves the range until few candidates
// are left to sort.
template <class Before>
void keep_mass(std::vector<Candidate>& candidates, float top, double target, Before before) {
  auto low = candidates.begin(), high = candidates.end();
  while (high - low > 64) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high, before);
    const double mass = mass_of({low, middle}, top);
    if (mass >= target) {
      high = middle;
    } else {
      target -= mass;
      low = middle;
    }
  }
  std::sort(low, high, before);
  for (double mass = 0; low < high && mass < target; ++low) mass += weight(low->logit, top, 1.0f);
  candidates.erase(std::max(low, candidates.begin() + 1), candidates.end());
}

}  // namespace

// Typical sampling ranks a token by the distance of its surprise from the expected surprise: |-log p - H|. Returns the
// new top.
float keep_typical(std::vector<Candidate>& candidates, float top, double p) {
  const double total = mass_of(candidates, top);
  double mean = 0;  // H = log(total) - mean, and -log p = log(total) - (logit - top): only the logits differ
  for (const Candidate& c : candidates) {
    const double mass = weight(c.logit, top, 1.0f);
    if (mass > 0) mean += mass / total * (static_cast<double>(c.logit) - top);
  }
  const double centre = top + mean;
  keep_mass(candidates, top, p * total, [centre](const Candidate& a, const Candidate& b) {
    const double distance_a = std::fabs(a.logit - centre), distance_b = std::fabs(b.logit - centre);
    return distance_a != distance_b ? distance_a < distance_b : likelier(a, b);
  });
  return std::min_element(candidates.begin(), candidates.end(), likelier)->logit;
}

void keep_top_p(std::vector<Candidate>& candidates, float top, double p, double total) {
  if (total == 0) total = mass_of(candidates, top);
  keep_mass(candidates, top, p * total, likelier);
}

void keep_min_p(std::vector<Candidate>& candidates, float top, float p) {
  const float floor = top + std::log(p);
  std::erase_if(candidates, [floor](const Candidate& c) { return c.logit < floor; });
}

int32_t draw_candidate(std::vector<Candidate>& candidates, float top, float inverse_temperature, double u) {
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  double total = 0;
  for (Candidate& c : candidates) {
    c.logit = weight(c.logit, top, inverse_temperature);  // from here on, `logit` holds a weight
    total += c.logit;
  }
  const double target = u * total;
  int32_t last = 0;  // rounding may put the target at the end, where candidates may have no weight
  double mass = 0;
  for (const Candidate& c : candidates) {
    mass += c.logit;
    if (c.logit > 0) last = c.id;
    if (mass > target) break;
  }
  return last;
}

}  // namespace ingot
