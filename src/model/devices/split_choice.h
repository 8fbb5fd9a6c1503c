// Decides which device runs each block of a model. Blocks that the options leave open get the fastest split that fits
// (split_plan.h). For Ranks, and for plans without a device.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/config/split.h"
#include "model/devices/memory_plan.h"
#include "text/tokenizers/pattern.h"

namespace ingot {

// The device of tensors whose GGUF name contains a match of the pattern. The first place whose pattern matches is used.
struct TensorPlace {
  std::shared_ptr<const Pattern> pattern;  // searched in names such as blk.3.ffn_up_exps.weight
  bool on_host = false;  // false: on a GPU
};
// Reads llama.cpp's list "PATTERN=CPU,PATTERN=CUDA0". Throws UsageError.
std::vector<TensorPlace> parse_tensor_places(const std::string& list);

// Tokens of a step if the host runs a part of the model and the options give no number. A larger step would leave less
// memory for the split.
inline constexpr int kSplitChunk = 512;

// choose_split chooses the empty fields.
struct SplitOptions {
  std::optional<int> gpu_layers;   // the last N layers are on GPUs; the others on the host
  std::optional<int> cpu_experts;  // the experts of the first N layers on GPUs are on the host
  std::vector<TensorPlace> places;
  std::vector<int> layers_of_device;  // of each device that BackendOptions::device names
  bool asks() const { return gpu_layers || cpu_experts || !places.empty(); }
};

// `gpus`: the devices that the options name, with the bytes that the model may take there. If `gpus` is the CPU alone,
// the whole model is there. `host`: the same for the CPU, called only if the whole model is not on `gpus`; the host is
// device gpus.size() of the split. Throws Error if nothing fits, and UsageError for options that do not fit the model.
Split choose_split(const Config& config, WeightSource& source, std::span<const DeviceMemory> gpus,
                   const std::function<DeviceMemory()>& host, const RunnerOptions& options);

// Lets a GPU keep copies of weights only if limit_copies (weights.h) does and, on a single GPU, the whole model then
// fits. Call it before choose_split.
void choose_copies(const Config& config, WeightSource& source, Backend& gpu, size_t memory, size_t n_gpus,
                   const RunnerOptions& options);

// "layers 0 to 9 of 32 on cpu, the rest on cuda". names: of each device.
std::string split_text(const Split& split, std::span<const std::string> names);

}  // namespace ingot
