#include "server/api/realtime_sound.h"

#include <algorithm>

#include "io/audio/decode.h"
#include "model/speech/voice.h"

namespace ingot {

std::optional<TurnFinder::Turn> TurnFinder::find(std::span<const float> recent, int64_t end, const TurnRules& rules) {
  const int64_t begin = end - std::ssize(recent);
  std::optional<VoiceSpan> last;  // the first one that is not over, or the last one
  for (const VoiceSpan& span : voice_spans(recent, rules.quietest)) {
    if (begin + span.end <= silent_until_) continue;
    if (!last || is_speaking_) last = span;
  }
  const auto samples = [](double ms) { return static_cast<int64_t>(ms * kSpeechRate / 1000); };
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
