// FusedLayers: runs all layers of a decoder in one launch, on clusters or on the whole GPU (layers_step.h), and knows
// which recorded steps run so. In small models, a kernel takes less time than a launch.
#pragma once
#include <array>
#include <bitset>
#include <map>
#include <memory>

#include "backend/blocks/plain_layers.h"
#include "backend/cuda/cluster/layers.h"
#include "backend/cuda/core.h"
#include "backend/cuda/grid/layers.h"
#include "backend/cuda/matmul/kernel_choice.h"
#include "backend/program.h"

namespace ingot::cuda {

class FusedLayers {
 public:
  FusedLayers(Core& core, KernelChoice& choice) : core_(core), choice_(choice) {}

  // Returns false, and does nothing, if no kernel runs the layers of this step.
  bool run(const PlainLayersBlock& block);
  // Finds out which recorded steps of a program run in one launch, for steps of up to max_rows tokens. Waits
  // until the kernels for the grid are compiled and `load` has loaded them. Otherwise results would depend on when a
  // kernel becomes ready.
  void compile(const Program& program, int max_rows, const std::function<void()>& load);

  // Whether recorded steps of this many tokens run on clusters.
  bool replays_on_clusters(const Program& program, int n_tokens) const;
  // The longest context on the grid, for recorded steps of n_seqs sequences of q_len tokens; 0: they do not run on the
  // grid.
  int longest_on_grid(const Program& program, int n_seqs, int q_len) const;

 private:
  // The steps of a program whose layers run in one launch.
  struct Steps {
    std::bitset<kMaxClusterTokens + 1> on_clusters;         // [n]: recorded steps of n tokens run on clusters
    std::array<int, kMaxGridTokens + 1> longest_on_grid{};  // [n]: of a recorded step of n tokens
  };
  std::unique_ptr<LayersStep> step_of(const PlainLayersBlock& block, int n_tokens) const;
  const void* grid_kernel(const LayersStep& step);

  Core& core_;
  KernelChoice& choice_;
  std::map<int, Steps> steps_;  // by the program's id
};

}  // namespace ingot::cuda
