// Resampler: one channel of sound to 16,000 samples a second, piece by piece, by libsamplerate. The library is opened
// at the first use.
#pragma once
#include <span>
#include <vector>

struct SRC_STATE_tag;  // of libsamplerate

namespace ingot {

class Resampler {
 public:
  // from: samples a second. Throws Error if libsamplerate is not installed, or does not support the rate.
  explicit Resampler(int from);
  ~Resampler();
  Resampler(const Resampler&) = delete;
  Resampler& operator=(const Resampler&) = delete;

  // Adds to `out` what the samples so far make certain. is_last: no samples follow, and all of the rest is added.
  void add(std::span<const float> samples, bool is_last, std::vector<float>& out);

 private:
  [[maybe_unused]] const int from_;
  [[maybe_unused]] SRC_STATE_tag* state_ = nullptr;  // null: the rates are equal
};

}  // namespace ingot
