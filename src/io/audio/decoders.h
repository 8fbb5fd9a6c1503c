// What opens a file of a known format: sndfile.cc, and ffmpeg.cc for the formats that libsndfile lacks. decode.cc
// chooses.
#pragma once
#include <memory>

#include "io/audio/decode.h"

namespace ingot {

inline constexpr int kMaxAudioChannels = 256;

// Both throw Error if a library is not installed, or if it refuses the file. format: for messages, and for
// open_ffmpeg() one of those that it knows.
std::unique_ptr<AudioStream> open_sndfile(std::span<const std::byte> file, const char* format,
                                          const AudioLimits& limits);
std::unique_ptr<AudioStream> open_ffmpeg(std::span<const std::byte> file, const char* format,
                                         const AudioLimits& limits);

}  // namespace ingot
