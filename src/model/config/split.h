// Split: which device runs each part of a decoder. A step runs the embedding, the parts of each layer in turn, and the
// head. Parts that read the same input (LayerPart::beside) are on one device, and count as one part.
//
// A run is a sequence of neighbouring parts of one device. The head's device runs the step. After its own parts, it
// sends the residual stream to the devices of the next runs, and receives the stream from the last of them
// (RemoteBlock).
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

namespace ingot {

struct Config;

// The numbers of a model's parts: 0 is the embedding, then the parts of each layer follow in turn, then the head.
struct PartNumbers {
  PartNumbers() = default;
  explicit PartNumbers(const Config& config);
  explicit PartNumbers(const std::vector<int>& parts_of_layers);

  std::vector<int> first = {1};  // [n_layers + 1]: the number of each layer's first part, and of the head

  int n_layers() const { return static_cast<int>(first.size()) - 1; }
  int head() const { return first.back(); }
  int n() const { return first.back() + 1; }
  int n_of(int layer) const { return at(layer + 1) - at(layer); }
  int at(int layer, int part = 0) const { return first[static_cast<size_t>(layer)] + part; }
  int layer_of(int number) const;  // -1: the embedding; n_layers(): the head
};

// The parts that one device has.
struct OwnParts {
  PartNumbers numbers;
  std::vector<bool> has;  // [numbers.n()]; empty: all parts

  bool embedding() const { return has.empty() || has.front(); }
  bool layer(int layer, int part) const { return has.empty() || has[static_cast<size_t>(numbers.at(layer, part))]; }
  bool head() const { return has.empty() || has.back(); }
};

struct Split {
  Split() = default;  // of no model: all parts are on device 0
  explicit Split(PartNumbers of_model) : numbers(std::move(of_model)), device(static_cast<size_t>(numbers.n())) {}
  explicit Split(const Config& config) : Split(PartNumbers(config)) {}

  PartNumbers numbers;
  std::vector<int> device;  // [numbers.n()]: of each part

  int& embedding() { return device.front(); }
  int& layer(int layer, int part) { return device[static_cast<size_t>(numbers.at(layer, part))]; }
  int layer(int layer, int part) const { return device[static_cast<size_t>(numbers.at(layer, part))]; }
  int& head() { return device.back(); }
  int head() const { return device.empty() ? 0 : device.back(); }
  int n_layers() const { return numbers.n_layers(); }

  int n_devices() const;  // the highest number of a device, plus one
  bool uses(int which) const;
  OwnParts part(int which) const;
  // The split as one device sees it: its own parts are on device 0, and the parts of all others on device 1.
  Split seen_by(int which) const;

  struct Run {
    int device = 0, first = 0, end = 0;  // parts [first, end)
  };
  std::vector<Run> runs() const;
};

}  // namespace ingot
