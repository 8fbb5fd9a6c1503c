// Log-mel features of speech, as Whisper was trained on them (arXiv:2212.04356): frames of 25 ms every 10 ms, a Hann
// window, power in bands of the mel scale, and the logarithm, cut 80 dB below the loudest band of the window. The
// numbers are those of transformers' WhisperFeatureExtractor.
#pragma once
#include <span>
#include <vector>

#include "base/threads.h"

namespace ingot {

inline constexpr int kFrameStep = 160;    // samples from one frame to the next
inline constexpr int kFrameLength = 400;  // samples of a frame
inline constexpr int kMaxMels = 256;

class LogMel {
 public:
  explicit LogMel(int n_mels);
  int n_mels() const { return n_mels_; }
  // The features of a window of n_frames * kFrameStep samples, [n_frames, n_mels]. Missing samples at the end are
  // zeros; further ones do not count. With a pool, its threads share the frames.
  std::vector<float> features(std::span<const float> samples, int n_frames, ThreadPool* pool = nullptr) const;

 private:
  // A band is a triangle over neighbouring frequencies.
  struct Band {
    int first = 0;
    std::vector<double> weights;
  };
  void power(std::span<const float> samples, int n_samples, int first_frame, int n_frames,
             double* out /* [kLanes * 2, frequencies] */) const;
  void logarithms(std::span<const float> samples, int n_samples, int first_frame, int n_frames,
                  float* out /* [n_frames, n_mels] */) const;

  int n_mels_;
  std::vector<Band> bands_;  // [n_mels]
};

}  // namespace ingot
