#include "server/api/realtime_sound.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/speech/voice.h"

namespace ingot {

// Windowed sinc functions that keep what is below 7,600 Hz.
PcmResampler::PcmResampler() : kept_(kReach), first_(-kReach) {
  constexpr double kCut = 2 * 7600.0 / kFrom;
  for (int phase = 0; phase < 2; ++phase) {
    double sum = 0;
    for (int k = -kReach; k <= kReach + 1; ++k) {
      const double at = k - 0.5 * phase, x = std::numbers::pi * kCut * at;
      const double window = 0.5 + 0.5 * std::cos(std::numbers::pi * at / (kReach + 1.5));
      weights_[phase].push_back(static_cast<float>((x == 0 ? 1 : std::sin(x) / x) * window));
      sum += weights_[phase].back();
    }
    for (float& weight : weights_[phase]) weight /= static_cast<float>(sum);
  }
}

void PcmResampler::add(std::span<const int16_t> pcm, std::vector<float>& out) {
  for (const int16_t sample : pcm) kept_.push_back(static_cast<float>(sample) / 32768);
  const int64_t end = first_ + std::ssize(kept_);
  for (;; ++next_) {
    const int64_t centre = next_ * 3 / 2;  // the sample at or before the place
    if (centre + kReach + 1 >= end) break;
    const std::vector<float>& weights = weights_[next_ % 2];
    float sum = 0;
    const float* from = kept_.data() + (centre - kReach - first_);
    for (size_t i = 0; i < weights.size(); ++i) sum += weights[i] * from[i];
    out.push_back(sum);
  }
  const int64_t n_old = std::max<int64_t>(0, next_ * 3 / 2 - kReach - first_);
  kept_.erase(kept_.begin(), kept_.begin() + n_old);
  first_ += n_old;
}

std::optional<TurnFinder::Turn> TurnFinder::find(std::span<const float> recent, int64_t end, const TurnRules& rules) {
  const int64_t begin = end - std::ssize(recent);
  std::optional<VoiceSpan> last;  // the first one that is not over, or the last one
  for (const VoiceSpan& span : voice_spans(recent, rules.quietest)) {
    if (begin + span.end <= silent_until_) continue;
    if (!last || is_speaking_) last = span;
  }
  const auto samples = [](double ms) { return static_cast<int64_t>(ms * PcmResampler::kTo / 1000); };
  if (!is_speaking_) {
    if (!last) return std::nullopt;
    is_speaking_ = true;
    const int64_t voice = std::min(begin + last->begin + samples(kVoicePadMs), end);
    return Turn{true, std::max(silent_until_, begin + last->begin), std::max(silent_until_, voice)};
  }
  const int64_t voice_end = last ? begin + last->end : begin;  // with a quarter of a second after the voice
  if (end - voice_end < samples(rules.silence_ms - kVoicePadMs)) return std::nullopt;
  if (last && last->end == std::ssize(recent)) return std::nullopt;
  is_speaking_ = false;
  silent_until_ = voice_end;
  return Turn{false, voice_end};
}

}  // namespace ingot
