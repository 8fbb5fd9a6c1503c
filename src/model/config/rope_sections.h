// The dimensions of a head that turn with time, height and width in models with a vision tower. In text all three are
// equal, so the sections matter only in prompts with images (VisionModel::adapt).
#pragma once
#include <vector>

namespace ingot {

struct RopeSections {
  std::vector<int> sizes;  // empty: none
};

}  // namespace ingot
