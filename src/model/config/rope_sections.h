// The dimensions of a head that turn with time, height and width in models with a vision tower. In text all three are
// equal, so that ingot only writes them, for readers that need the key.
#pragma once
#include <vector>

namespace ingot {

struct RopeSections {
  std::vector<int> sizes;  // empty: none
};

}  // namespace ingot
