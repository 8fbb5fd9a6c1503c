// The unit of coordinates in a model's answers, as the family's makers document it.
#pragma once
#include <cstdint>

namespace ingot {

struct BoxUnit {
  // 0: thousandths of the image's width and height. Otherwise pixels of the image as the tower sees it: its sides are
  // multiples of this number, and its area is within the limits.
  int multiple = 0;
  int64_t min_pixels = 0, max_pixels = 0;
};

}  // namespace ingot
