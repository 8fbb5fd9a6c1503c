#include "cli/split_options.h"

#include <charconv>
#include <limits>

#include "base/error.h"

namespace ingot {
namespace {

std::optional<int> count_of(const char* flag, const std::string& text) {
  if (text == "auto") return std::nullopt;
  if (text == "all") return std::numeric_limits<int>::max();
  int n = -1;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (status != std::errc() || end != text.data() + text.size() || n < 0)
    throw UsageError("{} '{}': give a number of layers, all or auto", flag, printable(text));
  return n;
}

}  // namespace

void add_split_options(CLI::App& app, SplitFlags& o) {
  app.add_option("--gpu-layers", o.gpu_layers,
                 "with --device cuda: this many layers on the GPU, the last ones, and the rest on the CPU; all, or "
                 "auto: "
                 "as many as fit (also -ngl)")
      ->capture_default_str();
  app.add_option("--cpu-experts,--n-cpu-moe", o.cpu_experts,
                 "with --device cuda: the experts of this many layers on the CPU, the first ones of those on the GPU; "
                 "all, "
                 "or auto: as few as needed")
      ->capture_default_str();
  app.add_option("--override-tensor", o.override_tensor,
                 "with --device cuda: PATTERN=CPU or PATTERN=CUDA0, several with commas: where the experts (attention, "
                 "feed-forward) of layers are whose GGUF names a regular expression finds, as '_exps=CPU'; the first "
                 "that finds a name counts");
  app.add_option("--pp", o.pp, "devices of --device that run the layers in turn, as in --device cuda:0,cuda:1 --pp 2")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--layers-split", o.layers_split,
                 "with --pp: the layers of each device, as 20,12; otherwise they are split by memory")
      ->delimiter(',');
}

SplitOptions read_split_flags(const SplitFlags& flags, int n_ranks, std::string& device) {
  SplitOptions split{.gpu_layers = count_of("--gpu-layers", flags.gpu_layers),
                     .cpu_experts = count_of("--cpu-experts", flags.cpu_experts),
                     .places = parse_tensor_places(flags.override_tensor),
                     .layers_of_device = flags.layers_split};
  if (split.gpu_layers == 0) {
    device = "cpu";
    split.gpu_layers.reset();
  }
  if (device == "cpu" && split.gpu_layers)
    throw UsageError("--gpu-layers {} needs a GPU: give --device cuda", flags.gpu_layers);
  const auto n_named = std::count(device.begin(), device.end(), ',') + 1;
  if (n_ranks > 1 && (flags.pp > 1 || split.asks()))
    throw UsageError(
        "--tp gives each rank a share of every layer: leave out --pp and the options that place layers or experts");
  if (n_ranks > 1) return split;
  if (flags.pp != n_named)
    throw UsageError(
        "--device names {} devices, but --pp is {}: the numbers must agree, as in --device cuda:0,cuda:1 --pp 2",
        n_named, flags.pp);
  if (!flags.layers_split.empty() && flags.pp == 1) throw UsageError("--layers-split needs --pp");
  return split;
}

}  // namespace ingot
