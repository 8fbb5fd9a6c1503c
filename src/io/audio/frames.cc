#include "io/audio/frames.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ingot {

// A file whose stated length differs by less than this is whole: some formats round the length.
static constexpr double kRoundedSeconds = 0.05;

float clean_sample(float x) { return std::isfinite(x) ? std::clamp(x, -32768.0f, 32768.0f) : 0.0f; }

FramesStream::FramesStream(std::unique_ptr<FrameSource> source, const AudioLimits& limits)
    : source_(std::move(source)), limits_(limits), resampler_(source_->rate()) {
  if (const auto seconds = stated_seconds(); seconds && *seconds > limits_.max_seconds) fail_long();
}

void FramesStream::fail_long() const {
  throw Error("the audio is longer than {} seconds, the limit: cut it into parts", limits_.max_seconds);
}

bool FramesStream::is_truncated() const {
  const auto seconds = stated_seconds();
  return seconds && static_cast<double>(n_frames_) / source_->rate() < *seconds - kRoundedSeconds;
}

size_t FramesStream::read(std::span<float> to) {
  size_t n = 0;
  while (n < to.size() && (at_ < samples_.size() || refill())) {
    const size_t n_here = std::min(to.size() - n, samples_.size() - at_);
    std::ranges::transform(std::span(samples_).subspan(at_, n_here), to.begin() + static_cast<std::ptrdiff_t>(n),
                           clean_sample);
    at_ += n_here, n += n_here;
  }
  n_samples_ += n;
  if (static_cast<double>(n_samples_) > limits_.max_seconds * kSpeechRate) fail_long();
  return n;
}

// False at the end. Some decoders go on behind a damaged place after they have said that the file ends there.
bool FramesStream::refill() {
  at_ = 0, samples_.clear();
  while (samples_.empty() && !at_end_) {
    source_->read(frames_);
    at_end_ = frames_.empty();
    n_frames_ += std::ssize(frames_);
    std::ranges::transform(frames_, frames_.begin(), clean_sample);
    resampler_.add(frames_, at_end_, samples_);
  }
  return !samples_.empty();
}

}  // namespace ingot
