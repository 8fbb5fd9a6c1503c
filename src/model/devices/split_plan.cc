#include "model/devices/split_plan.h"

#include <algorithm>
#include <numeric>

namespace ingot {
namespace {

// Rates of an ordinary GPU and host, and the time of a crossing. Only their ratios matter: they decide whether more
// bytes on the host or more crossings are slower.
constexpr double kGpuBytesPerMs = 1.5e9, kHostBytesPerMs = 6e7, kCrossingMs = 0.015;

PartNumbers numbers_of(const std::vector<BlockNeeds>& blocks) {
  std::vector<int> parts_of_layers;
  for (const BlockNeeds& block : blocks) {
    if (block.layer < 0) continue;
    parts_of_layers.resize(static_cast<size_t>(block.layer) + 1);
    ++parts_of_layers.back();
  }
  return PartNumbers(parts_of_layers);
}

class Search {
 public:
  Search(const std::vector<BlockNeeds>& blocks, const SplitLimits& limits, const SplitWishes& wishes)
      : blocks_(blocks),
        limits_(limits),
        wishes_(wishes),
        numbers_(numbers_of(blocks)),
        n_layers_(numbers_.n_layers()),
        host_(static_cast<int>(limits.gpu_bytes.size())) {}

  std::optional<Split> best() const {
    const bool is_fixed = wishes_.gpu_layers && (wishes_.host_experts || !has_experts());
    if (is_fixed)
      return split_of(first_gpu_layer(*wishes_.gpu_layers), experts_wished(), *wishes_.gpu_layers < n_layers_);
    std::optional<Split> best;
    double least_ms = 0;
    const int lowest = wishes_.gpu_layers ? first_gpu_layer(*wishes_.gpu_layers) : 0,
              highest = wishes_.gpu_layers ? lowest : n_layers_;
    for (int n_host_layers = lowest; n_host_layers <= highest; ++n_host_layers)
      for (const bool host_embeds : {false, true}) {
        if (n_host_layers > 0 && !host_embeds) continue;
        for (int n_experts = experts_wished(); n_experts <= most_experts(n_host_layers); ++n_experts) {
          const Split split = split_of(n_host_layers, n_experts, host_embeds);
          if (!fits(split)) continue;
          const double ms = estimated_ms(split, blocks_, host_);
          if (!best || ms < least_ms) best = split, least_ms = ms;
          break;  // more experts on the host are slower
        }
      }
    return best;
  }

 private:
  bool has_experts() const { return std::ranges::any_of(blocks_, &BlockNeeds::has_experts); }
  int first_gpu_layer(int n_gpu_layers) const { return n_layers_ - std::min(n_gpu_layers, n_layers_); }
  int experts_wished() const { return std::min(wishes_.host_experts.value_or(0), n_layers_); }
  int most_experts(int n_host_layers) const {
    return wishes_.host_experts ? experts_wished() : has_experts() ? n_layers_ - n_host_layers : 0;
  }

  // The first layers are on the host, and so are the experts of the next ones.
  Split split_of(int n_host_layers, int n_experts, bool host_embeds) const {
    Split split(numbers_);
    const std::vector<int> gpu = devices_of_layers(n_host_layers, host_embeds);
    for (int layer = 0; layer < n_layers_; ++layer) {
      for (int part = 0; part < numbers_.n_of(layer); ++part) {
        const bool on_host = layer < n_host_layers + n_experts &&
                             blocks_[static_cast<size_t>(numbers_.at(layer, part))].has_experts;
        split.layer(layer, part) = on_host ? host_ : gpu[static_cast<size_t>(layer)];
      }
    }
    const bool all_on_host = n_host_layers == n_layers_;
    split.embedding() = host_embeds ? host_ : gpu.front();
    split.head() = all_on_host ? host_ : host_ - 1;
    for (size_t i = 0; i < wishes_.on_host.size(); ++i)
      if (wishes_.on_host[i]) split.device[i] = host_;
    return split;
  }

  // The device of each layer: the host, then the GPUs in turn. Without wishes, each GPU gets bytes in proportion to its
  // memory; the first also has the embedding, and the last the head.
  std::vector<int> devices_of_layers(int n_host_layers, bool host_embeds) const {
    std::vector<int> devices(static_cast<size_t>(n_layers_), host_);
    if (!wishes_.layers_of_gpu.empty()) {
      int layer = n_host_layers;
      for (int gpu = 0; gpu < host_; ++gpu)
        for (int i = 0; i < wishes_.layers_of_gpu[static_cast<size_t>(gpu)] && layer < n_layers_; ++i)
          devices[static_cast<size_t>(layer++)] = gpu;
      return devices;
    }
    const double memory = std::accumulate(limits_.gpu_bytes.begin(), limits_.gpu_bytes.end(), 0.0);
    double so_far = host_embeds ? 0 : static_cast<double>(blocks_.front().gpu_bytes), share = 0;
    double all = so_far + static_cast<double>(blocks_.back().gpu_bytes);
    for (int layer = n_host_layers; layer < n_layers_; ++layer) all += layer_bytes(layer);
    int gpu = 0;
    for (int layer = n_host_layers; layer < n_layers_; ++layer) {
      const double middle = so_far + layer_bytes(layer) / 2;
      while (gpu + 1 < host_ && middle > (share + gpu_share(gpu, memory)) * all) share += gpu_share(gpu++, memory);
      devices[static_cast<size_t>(layer)] = gpu;
      so_far += layer_bytes(layer);
    }
    return devices;
  }
  double gpu_share(int gpu, double memory) const {
    return static_cast<double>(limits_.gpu_bytes[static_cast<size_t>(gpu)]) / std::max(memory, 1.0);
  }
  double layer_bytes(int layer) const {
    double bytes = 0;
    for (int i = numbers_.at(layer); i < numbers_.at(layer + 1); ++i)
      bytes += static_cast<double>(blocks_[static_cast<size_t>(i)].gpu_bytes);
    return bytes;
  }

  bool fits(const Split& split) const {
    std::vector<size_t> taken(static_cast<size_t>(host_) + 1);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const int device = split.device[i];
      taken[static_cast<size_t>(device)] += device == host_ ? blocks_[i].host_bytes : blocks_[i].gpu_bytes;
    }
    for (int gpu = 0; gpu < host_; ++gpu)
      if (taken[static_cast<size_t>(gpu)] > limits_.gpu_bytes[static_cast<size_t>(gpu)]) return false;
    return taken.back() <= limits_.host_bytes;
  }

  const std::vector<BlockNeeds>& blocks_;
  const SplitLimits& limits_;
  const SplitWishes& wishes_;
  const PartNumbers numbers_;
  const int n_layers_, host_;
};

}  // namespace

double estimated_ms(const Split& split, const std::vector<BlockNeeds>& blocks, int n_gpus) {
  double ms = kCrossingMs * static_cast<double>(split.runs().size() - 1);
  for (size_t i = 0; i < blocks.size(); ++i)
    ms += static_cast<double>(blocks[i].read_bytes) / (split.device[i] == n_gpus ? kHostBytesPerMs : kGpuBytesPerMs);
  return ms;
}

std::optional<Split> plan_split(const std::vector<BlockNeeds>& blocks, const SplitLimits& limits,
                                const SplitWishes& wishes) {
  return Search(blocks, limits, wishes).best();
}

}  // namespace ingot
