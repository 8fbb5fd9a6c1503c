// The windows of a recording: reads an audio stream as far as a window needs it, and keeps no more than that.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "io/audio/decode.h"

namespace ingot {

class WindowReader {
 public:
  explicit WindowReader(AudioStream& audio) : audio_(audio) {}

  // The samples [begin, begin + n), fewer at the end of the recording. begin must not decrease from call to call. The
  // result is valid until the next call.
  std::span<const float> window(int64_t begin, int64_t n);
  // Whether samples from `begin` on exist. Reads on if it must.
  bool has(int64_t begin);
  int64_t n_read() const { return first_ + static_cast<int64_t>(samples_.size()); }  // so far

 private:
  void read_to(int64_t end);

  AudioStream& audio_;
  std::vector<float> samples_;  // from first_ on
  int64_t first_ = 0;
  bool at_end_ = false;
};

}  // namespace ingot
