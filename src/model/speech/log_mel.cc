#include "model/speech/log_mel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>

#include "base/check.h"
#include "io/audio/decode.h"
#include "model/speech/fourier.h"

namespace ingot {
namespace {

constexpr int kFrequencies = kFrameLength / 2 + 1;
constexpr int kFramesAtOnce = 2 * kFourierLanes;  // a lane transforms two frames: one real, one imaginary
constexpr double kLeastPower = 1e-10;

static_assert(kFrameLength == kFourierLength);

// Slaney's mel scale: linear up to 1,000 Hz, then logarithmic.
constexpr double kBreakHz = 1000, kBreakMel = 15;
double mel_of(double hz) {
  return hz < kBreakHz ? 3 * hz / 200 : kBreakMel + std::log(hz / kBreakHz) * 27 / std::log(6.4);
}
double hz_of(double mel) {
  return mel < kBreakMel ? 200 * mel / 3 : kBreakHz * std::exp(std::log(6.4) / 27 * (mel - kBreakMel));
}

const std::array<double, kFrameLength>& hann() {
  static const auto window = [] {
    std::array<double, kFrameLength> all{};
    for (int i = 0; i < kFrameLength; ++i)
      all[static_cast<size_t>(i)] = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * i / kFrameLength);
    return all;
  }();
  return window;
}

}  // namespace

LogMel::LogMel(int n_mels) : n_mels_(n_mels) {
  CHECK(n_mels > 0 && n_mels <= kMaxMels);
  const double top = mel_of(kSpeechRate / 2.0);
  const auto edge = [&](int i) { return hz_of(top * i / (n_mels + 1)); };
  for (int band = 0; band < n_mels; ++band) {
    const double left = edge(band), middle = edge(band + 1), right = edge(band + 2), area = 2 / (right - left);
    Band& b = bands_.emplace_back();
    for (int f = 0; f < kFrequencies; ++f) {
      const double hz = double{kSpeechRate} / 2 * f / (kFrequencies - 1);
      const double weight = std::min((hz - left) / (middle - left), (right - hz) / (right - middle));
      if (weight <= 0 && b.weights.empty()) b.first = f + 1;
      if (weight > 0) b.weights.push_back(weight * area);
    }
  }
}

// The power of each frequency in up to kFramesAtOnce frames.
void LogMel::power(std::span<const float> samples, int n_samples, int first_frame, int n_frames, double* out) const {
  static thread_local const auto x = std::make_unique<FourierRows>(), scratch = std::make_unique<FourierRows>();
  const auto size = static_cast<int>(samples.size());
  // Frames stand over their middle; the window is mirrored at its ends.
  const auto sample = [&](int at) {
    at = at < 0 ? -at : at >= n_samples ? 2 * (n_samples - 1) - at : at;
    return at < size ? double{samples[static_cast<size_t>(at)]} : 0.0;
  };
  for (int frame = 0; frame < kFramesAtOnce; ++frame) {
    double* part = (frame % 2 == 0 ? x->re : x->im) + frame / 2;
    const int begin = (first_frame + frame) * kFrameStep - kFrameLength / 2;
    const bool is_inside = begin >= 0 && begin + kFrameLength <= std::min(size, n_samples);
    for (int i = 0; i < kFrameLength; ++i) {
      const double value = frame >= n_frames ? 0.0
                           : is_inside       ? double{samples[static_cast<size_t>(begin + i)]}
                                             : sample(begin + i);
      part[i * kFourierLanes] = value * hann()[static_cast<size_t>(i)];
    }
  }
  fourier_400(*x, *scratch);
  for (int f = 0; f < kFrequencies; ++f) {
    const int mirrored = (kFrameLength - f) % kFrameLength;
    for (int lane = 0; lane < kFourierLanes; ++lane) {
      const double re = x->re[f * kFourierLanes + lane], im = x->im[f * kFourierLanes + lane];
      const double re2 = x->re[mirrored * kFourierLanes + lane], im2 = x->im[mirrored * kFourierLanes + lane];
      const double a_re = re + re2, a_im = im - im2, b_re = im + im2, b_im = re2 - re;  // twice the two transforms
      out[2 * lane * kFrequencies + f] = 0.25 * (a_re * a_re + a_im * a_im);
      out[(2 * lane + 1) * kFrequencies + f] = 0.25 * (b_re * b_re + b_im * b_im);
    }
  }
}

// The logarithms of the bands of up to kFramesAtOnce frames.
void LogMel::logarithms(std::span<const float> samples, int n_samples, int first_frame, int n_frames,
                        float* out) const {
  static thread_local std::vector<double> powers(size_t{kFramesAtOnce} * kFrequencies);
  power(samples, n_samples, first_frame, n_frames, powers.data());
  for (int frame = 0; frame < n_frames; ++frame)
    for (const Band& band : bands_) {
      const double* at = powers.data() + frame * kFrequencies + band.first;
      double sum = 0;
      for (size_t i = 0; i < band.weights.size(); ++i) sum += band.weights[i] * at[i];
      *out++ = static_cast<float>(std::log10(std::max(sum, kLeastPower)));
    }
}

std::vector<float> LogMel::features(std::span<const float> samples, int n_frames, ThreadPool* pool) const {
  const int n_samples = n_frames * kFrameStep;
  CHECK(n_samples > kFrameLength);
  samples = samples.first(std::min(samples.size(), static_cast<size_t>(n_samples)));
  std::vector<float> out(static_cast<size_t>(n_frames) * n_mels_, static_cast<float>(std::log10(kLeastPower)));
  // Later frames see only the zeros behind the end.
  const int n_heard = std::min(n_frames, (static_cast<int>(samples.size()) + kFrameLength / 2) / kFrameStep + 1),
            n_tasks = (n_heard + kFramesAtOnce - 1) / kFramesAtOnce;
  const auto run = [&](int64_t task, int) {
    const int first = static_cast<int>(task) * kFramesAtOnce;
    logarithms(samples, n_samples, first, std::min(kFramesAtOnce, n_heard - first),
               out.data() + int64_t{first} * n_mels_);
  };
  if (pool != nullptr)
    pool->parallel_for(n_tasks, run);
  else
    for (int task = 0; task < n_tasks; ++task) run(task, 0);
  const float least = *std::ranges::max_element(out) - 8.0f;
  for (float& value : out) value = (std::max(value, least) + 4.0f) / 4.0f;
  return out;
}

}  // namespace ingot
