// What decodes a file: frames at the file's own rate, of which FramesStream makes the sound that speech models read.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "io/audio/decode.h"
#include "io/audio/resample.h"

namespace ingot {

class FrameSource {
 public:
  virtual ~FrameSource() = default;
  virtual int rate() const = 0;  // frames a second
  // Replaces `frames` by the next ones, averaged over their channels: some thousands, and none at the end. Numbers need
  // not be finite. Throws Error.
  virtual void read(std::vector<float>& frames) = 0;
  virtual std::optional<double> stated_seconds() const = 0;  // of the file, if it says so
};

class FramesStream final : public AudioStream {
 public:
  // Throws Error if the rate is no rate of sound, or if the stated length exceeds the limit.
  FramesStream(std::unique_ptr<FrameSource> source, const AudioLimits& limits);
  size_t read(std::span<float> to) override;
  std::optional<double> stated_seconds() const override { return source_->stated_seconds(); }
  bool is_truncated() const override;

 private:
  bool refill();
  [[noreturn]] void fail_long() const;

  const std::unique_ptr<FrameSource> source_;
  const AudioLimits limits_;
  Resampler resampler_;
  std::vector<float> frames_;   // that were decoded last
  std::vector<float> samples_;  // that they have become
  size_t at_ = 0;               // of samples_
  bool at_end_ = false;
  int64_t n_frames_ = 0;  // decoded so far
  size_t n_samples_ = 0;  // given out so far
};

// A sample of the result: a number that is not finite becomes 0, and larger ones are cut to the range of 16 bits,
// which some files of floats have in place of -1 to 1.
float clean_sample(float x);

}  // namespace ingot
