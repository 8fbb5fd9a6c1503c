// What opens a file of a known format (sndfile.cc). decode.cc chooses the formats.
#pragma once
#include <memory>

#include "io/audio/decode.h"

namespace ingot {

// Throws Error if libsndfile or libsamplerate is not installed, or if they refuse the file. format: for messages.
std::unique_ptr<AudioStream> open_sndfile(std::span<const std::byte> file, const char* format,
                                          const AudioLimits& limits);

// A sample of the result: a number that is not finite becomes 0, and larger ones are cut to the range of 16 bits,
// which some files of floats have in place of -1 to 1.
float clean_sample(float x);

}  // namespace ingot
