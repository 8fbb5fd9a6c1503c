// Where the headers of libsamplerate are missing, nothing is resampled.
#include "base/error.h"
#include "io/audio/decode.h"
#include "io/audio/resample.h"

namespace ingot {

Resampler::Resampler(int from) : from_(from) {
  if (from != kSpeechRate)
    throw Error("the audio cannot be read, because this program was built without libsamplerate");
}
Resampler::~Resampler() = default;

void Resampler::add(std::span<const float> samples, bool, std::vector<float>& out) {
  out.insert(out.end(), samples.begin(), samples.end());
}

}  // namespace ingot
