#include "backend/cuda/fused_layers.h"

#include <algorithm>

#include "backend/cuda/attention/kv_cache.h"
#include "backend/cuda/recorded/recorded_context.h"

namespace ingot::cuda {

// The kernel that runs all layers on the whole GPU. Null if there is none, or not yet.
const void* FusedLayers::grid_kernel(const LayersStep& step) {
  if (choice_.specialised() == nullptr) return nullptr;
  const std::string source = grid_source(step, core_.device.limits());
  return source.empty() ? nullptr : choice_.specialised()->find({.which = SpecialisedKernel::kGrid, .source = source});
}

std::unique_ptr<LayersStep> FusedLayers::step_of(const PlainLayersBlock& b, int n_tokens) const {
  if (core_.act != DType::kF16 || core_.deterministic) return nullptr;
  const KvCache& kv = *b.attention(0).kv;
  return layers_step(b, view_of(kv), core_.step.view(kv), n_tokens);
}

bool FusedLayers::run(const PlainLayersBlock& b) {
  const CurrentStep& now = core_.step;
  if (now.view().seen_len != nullptr) return false;
  const auto step = now.n_tokens <= kMaxClusterTokens ? step_of(b, now.n_tokens) : nullptr;
  const bool is_recorded = now.min_q_len == now.max_q_len && now.max_q_len <= kMaxRecordedTokens;
  if (step && now.most_kv <= kMaxClusterKv && runs_on_clusters(*step, is_recorded, core_.device)) {
    auto* turns = static_cast<ClusterTurns*>(core_.memory.scratch(Scratch::kTurns).data());
    run_cluster(*step, now.max_q_len, turns, core_.device);
    check_launch("run_cluster");
    return true;
  }
  const bool may_run_grid = step && now.most_kv <= cuda::longest_on_grid(*step);
  if (const void* kernel = may_run_grid ? grid_kernel(*step) : nullptr) {
    run_grid(kernel, *step, core_.memory.scratch(Scratch::kGrid).data(), core_.device);
    check_launch("run_grid");
    return true;
  }
  return false;
}

void FusedLayers::compile(const Program& program, int max_rows, const std::function<void()>& load) {
  for (const Block& block : program.blocks) {
    const auto* layers = block.as<PlainLayersBlock>();
    const auto step = layers != nullptr ? step_of(*layers, 1) : nullptr;
    if (!step) continue;
    for (int n = kMaxClusterTokens; n >= 1; --n) {
      step->n_tokens = n;
      if (runs_on_clusters(*step, true, core_.device)) steps_[program.id].on_clusters.set(static_cast<size_t>(n));
    }
    if (choice_.specialised() == nullptr) continue;
    const auto grid_kernel_of = [&](int n_tokens) {
      step->n_tokens = n_tokens;
      return grid_kernel(*step);
    };
    const int n_max = std::min(max_rows, kMaxGridTokens);
    grid_kernel_of(1);
    if (n_max > 1) grid_kernel_of(2);  // the kernel for any number of tokens from two on
    choice_.specialised()->wait();
    load();
    for (int n = 1; n <= n_max; ++n) {
      if (grid_kernel_of(n) == nullptr) continue;
      int& longest = steps_[program.id].longest_on_grid[static_cast<size_t>(n)];
      const int of_block = cuda::longest_on_grid(*step);
      longest = longest == 0 ? of_block : std::min(longest, of_block);  // a program may have several such blocks
    }
  }
}

bool FusedLayers::replays_on_clusters(const Program& program, int n_tokens) const {
  const auto steps = steps_.find(program.id);
  return steps != steps_.end() && n_tokens <= kMaxClusterTokens &&
         steps->second.on_clusters[static_cast<size_t>(n_tokens)];
}

int FusedLayers::longest_on_grid(const Program& program, int n_seqs, int q_len) const {
  const auto steps = steps_.find(program.id);
  const bool fits = steps != steps_.end() && n_seqs * q_len <= kMaxGridTokens;
  return fits ? steps->second.longest_on_grid[static_cast<size_t>(n_seqs * q_len)] : 0;
}

}  // namespace ingot::cuda
