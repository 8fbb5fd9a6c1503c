// Where a recording may have speech. A frame may be speech if the bands of its spectrum are above the floor of noise
// around it: the quietest moments of the seconds before and after. So steady noise, hum and tones are no speech. Clicks
// are too short. Music often passes: the speech model decides about it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace ingot {

inline constexpr int kVoicePadMs = 250;  // of sound before and after a span

struct VoiceSpan {
  int64_t begin = 0, end = 0;  // samples
};

// The spans of a part of a recording, in order, with some sound before and after each: pauses below a third of a second
// belong to a span. quietest: dBFS; quieter frames are no speech.
std::vector<VoiceSpan> voice_spans(std::span<const float> samples, double quietest);

// Where a window may end: the middle of the last pause in [earliest, samples.size()), or the quietest place there.
int64_t last_pause(std::span<const float> samples, std::span<const VoiceSpan> spans, int64_t earliest);

}  // namespace ingot
