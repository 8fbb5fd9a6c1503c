// Picture: pixels of a decoded image file, as every decoder gives them and every vision tower reads them.
#pragma once
#include <cstdint>
#include <vector>

namespace ingot {

struct Picture {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

}  // namespace ingot
