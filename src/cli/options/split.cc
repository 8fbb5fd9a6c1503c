#include "cli/options/split.h"

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
                 "number of layers on the GPU, counted from the last; the CPU runs the rest; all, or auto: as many as "
                 "fit (with --device cuda; also -ngl)")
      ->capture_default_str();
  app.add_option("--cpu-experts,--n-cpu-moe", o.cpu_experts,
                 "number of layers whose experts run on the CPU, counted from the first layer on the GPU; all, or "
                 "auto: as few as needed (with --device cuda)")
      ->capture_default_str();
  app.add_option("--override-tensor", o.override_tensor,
                 "device of experts, attention or feed-forward, by tensor name: PATTERN=CPU or PATTERN=CUDA0, several "
                 "with commas, such as '_exps=CPU'; PATTERN is a regular expression for GGUF names; the first match "
                 "counts (with --device cuda)");
  app.add_option("--pp", o.pp,
                 "number of devices that share the layers, as stages of a pipeline: --device cuda:0,cuda:1 --pp 2; "
                 "with --tp, each stage has that many ranks; under mpirun, each process is one stage or one rank")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--layers-split", o.layers_split,
                 "number of layers on each device, such as 20,12; default: split by memory (with --pp)")
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
  if (n_ranks > 1 && split.asks())
    throw UsageError("--tp gives each rank a share of every layer: leave out the options that place layers or experts");
  if (!flags.layers_split.empty() && flags.pp == 1) throw UsageError("--layers-split needs --pp");
  return split;
}

}  // namespace ingot
