// What the decoders of the formats share: the pixels that a decoder gives, and the check of sizes that comes before
// each allocation. A format is a row of the table in decode.cc and a file.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "io/images/decode.h"

namespace ingot {

struct DecodedPixels {
  int width = 0, height = 0;
  int n_channels = 3;           // 3: RGB, 4: RGB and alpha, not premultiplied
  std::vector<uint8_t> values;  // [height, width, n_channels]
  int orientation = 1;          // 1 to 8, as EXIF has it
};

// Throws Error if a picture of this size exceeds a limit. `bytes_per_pixel`: what the decoder needs at the same time.
void check_image_size(uint64_t width, uint64_t height, uint64_t bytes_per_pixel, const ImageLimits& limits);

// Throws the Error of a damaged file. `why` is a library's text; it may be empty.
[[noreturn]] void fail_damaged_image(const char* format, std::string_view why);
[[noreturn]] void fail_truncated_image(const char* format);

// The orientation in a block of EXIF data, which may begin with "Exif\0\0"; 1 if the block has none or is damaged.
int exif_orientation(std::span<const uint8_t> exif);

DecodedPixels decode_jpeg(std::span<const uint8_t> file, const ImageLimits& limits);
DecodedPixels decode_png(std::span<const uint8_t> file, const ImageLimits& limits);
DecodedPixels decode_webp(std::span<const uint8_t> file, const ImageLimits& limits);
DecodedPixels decode_gif(std::span<const uint8_t> file, const ImageLimits& limits);
DecodedPixels decode_heif(std::span<const uint8_t> file, const ImageLimits& limits);

}  // namespace ingot
