#include "model/config/split.h"

#include <algorithm>

#include "model/config/kind.h"

namespace ingot {

PartNumbers::PartNumbers(const Config& c) {
  for (int layer = 0; layer < c.n_layers; ++layer)
    first.push_back(first.back() + placed_parts(c, layer).back().part + 1);
}

PartNumbers::PartNumbers(const std::vector<int>& parts_of_layers) {
  for (const int n : parts_of_layers) first.push_back(first.back() + n);
}

int PartNumbers::layer_of(int number) const {
  return static_cast<int>(std::ranges::upper_bound(first, number) - first.begin()) - 1;
}

int Split::n_devices() const { return device.empty() ? 1 : *std::ranges::max_element(device) + 1; }

bool Split::uses(int which) const {
  return device.empty() ? which == 0 : std::ranges::find(device, which) != device.end();
}

OwnParts Split::part(int which) const {
  OwnParts part{.numbers = numbers, .has = {}};
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
