// Resizes pictures as Pillow and torchvision do with antialiasing: a filter over the source pixels below each result
// pixel, first along the rows, then along the columns, and 8-bit values between the two.
#pragma once
#include "io/images/picture.h"

namespace ingot {

// The numbers are those of Pillow, which preprocessor_config.json uses.
enum class Filter : uint8_t { kNearest = 0, kLanczos = 1, kBilinear = 2, kBicubic = 3, kBox = 4, kHamming = 5 };

// The picture in width x height pixels; the picture itself if the size is equal. Work and memory are bounded by the
// sizes of both pictures.
Picture resized(const Picture& picture, int width, int height, Filter filter);

// The pixels [x, x + width) x [y, y + height), which must lie inside the picture.
Picture cropped(const Picture& picture, int x, int y, int width, int height);

}  // namespace ingot
