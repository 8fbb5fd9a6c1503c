#include "model/speech/voice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "io/audio/decode.h"
#include "model/speech/fourier.h"

namespace ingot {
namespace {

constexpr int64_t kStep = kSpeechRate / 100;  // samples from one frame to the next
constexpr int64_t kFrame = kFourierLength;
constexpr std::array kEdges = {3, 7, 12, 19, 29, 43, 63, 91, 125};  // of the bands, in steps of 40 Hz
constexpr size_t kVoiceBands = kEdges.size() - 1;
constexpr int64_t kSmooth = 2;      // frames on each side
constexpr int64_t kAround = 150;    // frames on each side whose quietest moment is the floor
constexpr float kFloorBias = 1.6f;  // the mean of noise over its quietest moment
constexpr float kMostDb = 20, kLeastScoreDb = 4;
constexpr int64_t kClick = 9, kShortest = 12, kPause = 30, kPad = kVoicePadMs / 10;  // frames

using Bands = std::array<float, kVoiceBands>;

struct VoiceFrames {
  std::vector<Bands> bands;   // power
  std::vector<float> levels;  // mean square of the samples
};

// Two frames are the real and the imaginary part of one sequence, whose spectra are separated by symmetry.
VoiceFrames frames_of(std::span<const float> samples) {
  const int64_t n = std::max<int64_t>(1, (std::ssize(samples) + kStep - 1) / kStep);
  VoiceFrames all{std::vector<Bands>(static_cast<size_t>(n)), std::vector<float>(static_cast<size_t>(n))};
  static const auto hann = [] {
    std::array<double, kFrame> w{};
    for (size_t i = 0; i < w.size(); ++i)
      w[i] = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(kFrame));
    return w;
  }();
  FourierRows x{}, scratch{};
  const auto sample = [&](int64_t i) {
    return i < std::ssize(samples) ? double{samples[static_cast<size_t>(i)]} : 0.0;
  };
  for (int64_t first = 0; first < n; first += 2 * kFourierLanes) {
    for (int64_t i = 0; i < kFrame; ++i)
      for (int64_t lane = 0; lane < kFourierLanes; ++lane) {
        const int64_t at = (first + 2 * lane) * kStep + i;
        const auto to = static_cast<size_t>(i * kFourierLanes + lane);
        x.re[to] = sample(at) * hann[static_cast<size_t>(i)];
        x.im[to] = sample(at + kStep) * hann[static_cast<size_t>(i)];
      }
    fourier_400(x, scratch);
    for (int64_t lane = 0; lane < kFourierLanes; ++lane)
      for (int64_t part = 0; part < 2; ++part) {
        const int64_t frame = first + 2 * lane + part;
        if (frame >= n) continue;
        for (size_t band = 0; band < kVoiceBands; ++band) {
          double power = 0;
          for (int64_t k = kEdges[band]; k < kEdges[band + 1]; ++k) {
            const auto a = static_cast<size_t>(k * kFourierLanes + lane),
                       b = static_cast<size_t>((kFrame - k) * kFourierLanes + lane);
            const double re = part == 0 ? x.re[a] + x.re[b] : x.im[a] + x.im[b],
                         im = part == 0 ? x.im[a] - x.im[b] : x.re[b] - x.re[a];
            power += re * re + im * im;
          }
          all.bands[static_cast<size_t>(frame)][band] = static_cast<float>(power);
        }
      }
  }
  for (int64_t frame = 0; frame < n; ++frame) {
    const auto part = samples.subspan(static_cast<size_t>(frame * kStep),
                                      std::min<size_t>(kStep, samples.size() - static_cast<size_t>(frame * kStep)));
    double sum = 0;
    for (const float s : part) sum += double{s} * s;
    all.levels[static_cast<size_t>(frame)] = static_cast<float>(sum / static_cast<double>(kStep));
  }
  return all;
}

// The mean of the frames around each one.
std::vector<Bands> smoothed(const std::vector<Bands>& bands) {
  std::vector<Bands> all(bands.size());
  for (int64_t i = 0; i < std::ssize(bands); ++i) {
    const int64_t begin = std::max<int64_t>(0, i - kSmooth), end = std::min(std::ssize(bands), i + kSmooth + 1);
    for (size_t band = 0; band < kVoiceBands; ++band) {
      float sum = 0;
      for (int64_t k = begin; k < end; ++k) sum += bands[static_cast<size_t>(k)][band];
      all[static_cast<size_t>(i)][band] = sum / static_cast<float>(end - begin);
    }
  }
  return all;
}

// For each frame: how far its bands are above the floor, in dB, the mean of all bands.
std::vector<float> scores_of(const std::vector<Bands>& bands) {
  std::vector<float> scores(bands.size());
  const int64_t n = std::ssize(bands);
  for (size_t band = 0; band < kVoiceBands; ++band) {
    std::vector<int64_t> falling;  // frames whose power is below that of all later ones of the window: the floor first
    size_t front = 0;
    for (int64_t next = 0, i = 0; i < n; ++i) {
      for (; next < std::min(n, i + kAround + 1); ++next) {
        const float power = bands[static_cast<size_t>(next)][band];
        while (falling.size() > front && bands[static_cast<size_t>(falling.back())][band] >= power) falling.pop_back();
        falling.push_back(next);
      }
      while (falling[front] < i - kAround) ++front;
      const float floor = bands[static_cast<size_t>(falling[front])][band] * kFloorBias + 1e-9f;
      const float db = 10 * std::log10(bands[static_cast<size_t>(i)][band] / floor + 1e-9f);
      scores[static_cast<size_t>(i)] += std::clamp(db, 0.0f, kMostDb) / kVoiceBands;
    }
  }
  return scores;
}

// Whether a tenth of the span's frames have a third band within 30 dB of the strongest. A tone has fewer.
bool is_broad(const std::vector<Bands>& bands, const VoiceSpan& span) {
  int64_t n = 0;
  for (int64_t i = span.begin; i < span.end; ++i) {
    const Bands& frame = bands[static_cast<size_t>(i)];
    const float least = 1e-3f * *std::ranges::max_element(frame);
    n += std::ranges::count_if(frame, [least](float power) { return power >= least; }) >= 3;
  }
  return 10 * n >= span.end - span.begin;
}

// The spans of voice in frames: without clicks, joined over short pauses, and without those that are too short.
std::vector<VoiceSpan> joined(const std::vector<bool>& is_voice) {
  std::vector<VoiceSpan> spans;
  const int64_t n = std::ssize(is_voice);
  for (int64_t i = 0; i < n;) {
    if (!is_voice[static_cast<size_t>(i)]) {
      ++i;
      continue;
    }
    int64_t end = i;
    while (end < n && is_voice[static_cast<size_t>(end)]) ++end;
    const bool is_click = end - i < kClick;
    if (!is_click && !spans.empty() && i - spans.back().end < kPause)
      spans.back().end = end;
    else if (!is_click)
      spans.push_back({i, end});
    i = end;
  }
  std::erase_if(spans, [](const VoiceSpan& span) { return span.end - span.begin < kShortest; });
  return spans;
}

}  // namespace

std::vector<VoiceSpan> voice_spans(std::span<const float> samples, double quietest) {
  if (samples.empty()) return {};
  const VoiceFrames frames = frames_of(samples);
  const std::vector<float> scores = scores_of(smoothed(frames.bands));
  const auto least = static_cast<float>(std::pow(10, quietest / 10) / 2);  // a sine has half the power of its peak
  std::vector<bool> is_voice(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) is_voice[i] = scores[i] >= kLeastScoreDb && frames.levels[i] >= least;
  std::vector<VoiceSpan> spans;
  for (const VoiceSpan& span : joined(is_voice)) {
    if (!is_broad(frames.bands, span)) continue;
    const VoiceSpan wide{std::max<int64_t>(0, span.begin - kPad) * kStep,
                         std::min(std::ssize(samples), (span.end + kPad) * kStep)};
    if (!spans.empty() && spans.back().end >= wide.begin)
      spans.back().end = wide.end;
    else
      spans.push_back(wide);
  }
  return spans;
}

int64_t last_pause(std::span<const float> samples, std::span<const VoiceSpan> spans, int64_t earliest) {
  for (size_t i = spans.size(); i-- > 1;) {
    const int64_t middle = (spans[i - 1].end + spans[i].begin) / 2;
    if (middle >= earliest) return middle;
  }
  int64_t best = std::ssize(samples);
  double least = std::numeric_limits<double>::infinity();
  constexpr int64_t kPiece = kSpeechRate / 5;
  for (int64_t at = earliest; at + kPiece <= std::ssize(samples); at += kStep * 5) {
    double sum = 0;
    for (const float s : samples.subspan(static_cast<size_t>(at), kPiece)) sum += double{s} * s;
    if (sum < least) least = sum, best = at + kPiece / 2;
  }
  return best;
}

}  // namespace ingot
