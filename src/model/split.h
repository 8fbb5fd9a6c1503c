// Split: which device runs each block of a decoder. The blocks have numbers in the order in which a step runs them: the
// embedding, attention and feed-forward of each layer in turn, the head.
//
// A run is a sequence of neighbouring blocks of one device. The head's device runs the step. After its own blocks, it
// sends the residual stream to the devices of the next runs, and receives the stream from the last of them
// (RemoteBlock).
#pragma once
#include <cstddef>
#include <vector>

namespace ingot {

// The blocks that one device has, as one bool for each block; empty: all blocks.
struct Part {
  std::vector<bool> has;  // [2 * n_layers + 2]

  bool embedding() const { return has.empty() || has.front(); }
  bool attention(int layer) const { return has.empty() || has[static_cast<size_t>(2 * layer + 1)]; }
  bool feed_forward(int layer) const { return has.empty() || has[static_cast<size_t>(2 * layer + 2)]; }
  bool layer(int layer, size_t part) const { return part == 0 ? attention(layer) : feed_forward(layer); }
  bool head() const { return has.empty() || has.back(); }
};

struct Split {
  Split() = default;  // of no model: all blocks are on device 0
  explicit Split(int n_layers) : device(static_cast<size_t>(2 * n_layers + 2)) {}

  std::vector<int> device;  // [2 * n_layers + 2]: of each block

  int& embedding() { return device.front(); }
  int& attention(int layer) { return device[static_cast<size_t>(2 * layer + 1)]; }
  int& feed_forward(int layer) { return device[static_cast<size_t>(2 * layer + 2)]; }
  int& head() { return device.back(); }
  int head() const { return device.empty() ? 0 : device.back(); }
  int n_layers() const { return static_cast<int>(device.size()) / 2 - 1; }

  int n_devices() const;  // the highest number of a device, plus one
  bool uses(int which) const;
  Part part(int which) const;
  // The split as one device sees it: its own blocks are on device 0, and the blocks of all others on device 1.
  Split seen_by(int which) const;

  struct Run {
    int device = 0, first = 0, end = 0;  // blocks [first, end)
  };
  std::vector<Run> runs() const;
};

}  // namespace ingot
