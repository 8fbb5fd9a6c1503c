// Decodes the image files that users send: JPEG, PNG, WebP, GIF and, where libheif is installed, HEIF and AVIF. The
// content names the format; a name or a media type is never asked. The result is what pillow gives after
// exif_transpose(), with transparent pixels over white and 8 bits a colour.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "io/images/picture.h"

namespace ingot {

struct ImageLimits {
  uint64_t max_bytes = uint64_t{32} << 20;  // of the file
  uint64_t max_pixels = 50'000'000;         // of the picture; checked before its memory is taken
  uint64_t max_memory = uint64_t{1} << 30;  // bytes that decoding may need at once, with the result
};

// Throws Error: the file has another format, is damaged or truncated, or exceeds a limit. The message is a sentence
// about "the image", so that callers can say before it which one. Of an animation, the first frame counts.
Picture decode_image(std::span<const std::byte> file, const ImageLimits& limits);

// Whether a file, or the beginning of one, is in an image format that this program knows, decoded or not.
bool is_image(std::span<const std::byte> file);

// The formats that this program reads: "JPEG, PNG, WebP and GIF".
std::string image_formats();

}  // namespace ingot
