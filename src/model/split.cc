#include "model/split.h"

#include <algorithm>

namespace ingot {

int Split::n_devices() const { return device.empty() ? 1 : *std::ranges::max_element(device) + 1; }

bool Split::uses(int which) const {
  return device.empty() ? which == 0 : std::ranges::find(device, which) != device.end();
}

Part Split::part(int which) const {
  Part part;
  for (const int of_block : device) part.has.push_back(of_block == which);
  return part;
}

Split Split::seen_by(int which) const {
  Split seen = *this;
  for (int& of_block : seen.device) of_block = of_block == which ? 0 : 1;
  return seen;
}

std::vector<Split::Run> Split::runs() const {
  std::vector<Run> runs;
  for (int i = 0; i < static_cast<int>(device.size()); ++i) {
    const int of_block = device[static_cast<size_t>(i)];
    if (runs.empty() || runs.back().device != of_block) runs.push_back({of_block, i, i});
    runs.back().end = i + 1;
  }
  return runs;
}

}  // namespace ingot
