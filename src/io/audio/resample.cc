#include "io/audio/resample.h"

#include <samplerate.h>

#include <array>

#include "base/error.h"
#include "io/audio/audio_library.h"
#include "io/audio/decode.h"

namespace ingot {
namespace {

constexpr int kMaxRateRatio = 256;  // of libsamplerate: the rates may differ by this factor

#define INGOT_SAMPLERATE_FUNCTIONS(F) F(src_new) F(src_process) F(src_delete) F(src_strerror)
INGOT_LIBRARY(SamplerateLibrary, INGOT_SAMPLERATE_FUNCTIONS)

const SamplerateLibrary& samplerate() {
  static const SamplerateLibrary library({"libsamplerate.so.0", "libsamplerate.0.dylib", "samplerate.dll"});
  if (!library.is_found) miss_library("libsamplerate");
  return library;
}

}  // namespace

Resampler::Resampler(int from) : from_(from) {
  if (from < kSpeechRate / kMaxRateRatio + 1 || from > kSpeechRate * kMaxRateRatio)
    throw Error("the audio has {} samples a second: expected {} to {}", from, kSpeechRate / kMaxRateRatio + 1,
                kSpeechRate * kMaxRateRatio);
  if (from == kSpeechRate) return;
  int fault = 0;
  state_ = samplerate().src_new(SRC_SINC_MEDIUM_QUALITY, 1, &fault);
  if (state_ == nullptr) throw Error("the audio cannot be resampled: {}", samplerate().src_strerror(fault));
}

Resampler::~Resampler() {
  if (state_ != nullptr) samplerate().src_delete(state_);
}

void Resampler::add(std::span<const float> samples, bool is_last, std::vector<float>& out) {
  if (state_ == nullptr) {
    out.insert(out.end(), samples.begin(), samples.end());
    return;
  }
  std::array<float, 4096> part;
  for (;;) {
    SRC_DATA step{.data_in = samples.data(),
                  .data_out = part.data(),
                  .input_frames = static_cast<long>(samples.size()),
                  .output_frames = static_cast<long>(part.size()),
                  .input_frames_used = 0,
                  .output_frames_gen = 0,
                  .end_of_input = is_last,
                  .src_ratio = double{kSpeechRate} / from_};
    if (const int fault = samplerate().src_process(state_, &step); fault != 0)
      throw Error("the audio cannot be resampled: {}", samplerate().src_strerror(fault));
    out.insert(out.end(), part.begin(), part.begin() + step.output_frames_gen);
    samples = samples.subspan(static_cast<size_t>(step.input_frames_used));
    if (step.output_frames_gen == 0 && (samples.empty() || step.input_frames_used == 0)) return;
  }
}

}  // namespace ingot
