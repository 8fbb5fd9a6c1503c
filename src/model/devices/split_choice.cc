#include "model/devices/split_choice.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory_error.h"
#include "base/system.h"
#include "model/config/layer_inputs.h"
#include "model/layers/rwkv7.h"
#include "model/layers/shared_transformer.h"
#include "model/config/tensors.h"
#include "model/devices/ranks.h"
#include "model/devices/split_plan.h"
#include "model/program/decoder_program.h"
#include "model/program/kv_caches.h"

namespace ingot {
namespace {

constexpr int kUsefulContext = 4096;  // a model whose context would be shorter does not fit
constexpr int kLeastOfSequence = 512;
constexpr size_t kSpareShare = 50;  // padding of weights and caches that are counted block by block

// The tokens for which every split keeps room.
int64_t tokens_wanted(const Config& c, const RunnerOptions& o) {
  if (o.n_kv_tokens > 0) return o.n_kv_tokens;
  const int context = o.n_ctx > 0 ? o.n_ctx : std::min(c.n_ctx_train, kUsefulContext);
  return std::max<int64_t>(context, int64_t{kLeastOfSequence} * o.max_seqs);
}

bool fits_whole(const Config& c, WeightSource& source, const DeviceMemory& device, const RunnerOptions& o) {
  try {
    const WeightBytes weights = weight_bytes(source, c, *device.backend);
    const size_t available = device.available - std::min(device.available, device.backend->driver_bytes());
    const MemoryPlan plan = plan_memory(c, weights, available, o, device.backend);
    return plan.total_bytes() <= available && (o.n_ctx > 0 || plan.n_ctx >= std::min(c.n_ctx_train, kUsefulContext));
  } catch (const MemoryError&) {
    return false;
  }
}

OwnParts only(int number, const PartNumbers& numbers) {
  OwnParts part{.numbers = numbers, .has = std::vector<bool>(static_cast<size_t>(numbers.n()))};
  part.has[static_cast<size_t>(number)] = true;
  return part;
}

// The weights and caches of one block on the device.
size_t bytes_of_block(const Config& c, WeightSource& source, const Backend& backend, int block,
                      const RunnerOptions& o) {
  const OwnParts part = only(block, PartNumbers(c));
  size_t bytes = weight_bytes(source, c, backend, part).total();
  std::vector<KvShape> caches = kv_shapes(c, part, o.block_size, o.kv_dtype);
  set_blocks(caches, kv_caches(c), {tokens_wanted(c, o), o.max_seqs, o.max_batch_tokens, c.max_source_rows});
  for (const KvShape& kv : caches)
    if (kv.n_layers > 0) bytes += backend.kv_bytes(kv);
  const int n_snapshots = o.n_snapshots >= 0 ? o.n_snapshots : 2;
  if (const StateShape states = state_shape(c, o.max_seqs + n_snapshots, part)) bytes += backend.state_bytes(states);
  return bytes;
}

bool has_experts(const Config& c, int layer, int part) {
  return std::ranges::any_of(placed_parts(c, layer), [&](const PlacedKind& placed) {
    return placed.part == part && (placed.kind == &kExpertsPart || placed.kind == &kDenseExpertsPart);
  });
}

const char* name_of_part(const Config& c, int layer, int part) {
  const auto placed = placed_parts(c, layer);
  const bool mixes =
      std::ranges::any_of(placed, [&](const auto& one) { return one.part == part && one.kind->is_mixer; });
  return mixes ? "attention" : has_experts(c, layer, part) ? "the experts" : "the feed-forward";
}

std::vector<BlockNeeds> needs_of(const Config& c, WeightSource& source, const Backend& gpu, const Backend& host,
                                 const RunnerOptions& o) {
  std::vector<BlockNeeds> needs;
  const PartNumbers numbers(c);
  for (int block = 0; block < numbers.n(); ++block) {
    const int layer = numbers.layer_of(block);
    BlockNeeds one{.layer = layer < c.n_layers ? layer : -1,
                   .gpu_bytes = bytes_of_block(c, source, gpu, block, o),
                   .host_bytes = bytes_of_block(c, source, host, block, o)};
    if (one.layer >= 0) one.has_experts = has_experts(c, layer, block - numbers.at(layer));
    one.read_bytes = block == 0 ? 0 : one.host_bytes;
    if (one.has_experts) one.read_bytes = one.host_bytes / static_cast<size_t>(c.experts.n) * c.experts.n_used;
    needs.push_back(one);
  }
  return needs;
}

// The bytes that the device has for blocks, without the buffers of a step.
size_t room_on(const Config& c, const DeviceMemory& device, const RunnerOptions& o) {
  const int n_tokens = o.max_batch_tokens > 0 ? o.max_batch_tokens : std::max(kSplitChunk, o.max_seqs);
  const StepLimits limits{.max_tokens = n_tokens,
                          .max_seqs = o.max_seqs,
                          .max_logits = o.logit_rows(),
                          .max_kv_len = static_cast<int>(tokens_wanted(c, o)),
                          .n_vocab = c.n_vocab};
  const size_t taken = step_bytes(c, limits, device.backend, Split(c), 0) + device.backend->driver_bytes() +
                       device.available / kSpareShare;
  return device.available - std::min(device.available, taken);
}

// Names of the matrices that are most of a part: all matrices of attention and of a plain feed-forward, and the
// stacked matrices of experts. Each weight has one or several names.
std::vector<std::vector<std::string>> names_in_part(const Config& c, int layer, int part) {
  std::vector<std::pair<Weight& (*)(void*), std::vector<std::string>>> weights;
  const bool experts = has_experts(c, layer, part);
  for (const PlacedKind& placed : placed_parts(c, layer)) {
    if (placed.part != part) continue;
    for (const MatrixRow& row : placed.kind->rows().matrices) {
      if (!applies(row, c, layer)) continue;
      if (experts ? row.count.used == nullptr : row.optional != nullptr) continue;
      auto known = std::ranges::find(weights, row.member, &decltype(weights)::value_type::first);
      if (known == weights.end()) known = weights.insert(weights.end(), {row.member, {}});
      const std::string_view name = row.gguf_name;
      known->second.push_back(fmt::format(fmt::runtime(name.substr(0, name.find('|'))), layer));
    }
  }
  std::vector<std::vector<std::string>> names;
  for (auto& [weight, of_weight] : weights) names.push_back(std::move(of_weight));
  return names;
}

// [blocks]: whether patterns put the block on the host. A block is on one device.
std::vector<bool> blocks_on_host(const Config& c, const std::vector<TensorPlace>& places) {
  const PartNumbers numbers(c);
  std::vector<bool> on_host(static_cast<size_t>(numbers.n()));
  bool finds_any = false;
  const auto place_of = [&](const std::vector<std::string>& names) {
    for (const TensorPlace& place : places)
      for (const std::string& name : names)
        if (place.pattern->matches_part(name)) return finds_any = true, place.on_host;
    return false;
  };
  for (int layer = 0; layer < c.n_layers; ++layer)
    for (int part = 0; part < numbers.n_of(layer); ++part) {
      const auto names = names_in_part(c, layer, part);
      const auto n = std::ranges::count_if(names, place_of);
      if (n != 0 && n != std::ssize(names))
        throw UsageError(
            "override-tensor puts {} of {} matrices of {} of layer {} on the CPU: they must be on one device, so the "
            "patterns must match all of them or none",
            n, names.size(), name_of_part(c, layer, part), layer);
      on_host[static_cast<size_t>(numbers.at(layer, part))] = n != 0;
    }
  if (!places.empty() && !finds_any)
    throw UsageError(
        "override-tensor: no pattern matches a matrix of attention, feed-forward or experts of this model");
  return on_host;
}

SplitWishes wishes_of(const Config& c, const RunnerOptions& o, size_t n_gpus) {
  const SplitOptions& s = o.layers_on;
  SplitWishes wishes{.gpu_layers = s.gpu_layers,
                     .host_experts = s.cpu_experts,
                     .layers_of_gpu = s.layers_of_device,
                     .on_host = blocks_on_host(c, s.places)};
  if (s.cpu_experts.value_or(0) > 0 && c.experts.n == 0)
    throw UsageError("cpu-experts needs a model with experts, but this model has none: use gpu-layers");
  if (!s.layers_of_device.empty()) {
    int sum = 0;
    for (const int n : s.layers_of_device) sum += n;
    const int wanted = std::min(s.gpu_layers.value_or(c.n_layers), c.n_layers);
    if (s.layers_of_device.size() != n_gpus || sum != wanted)
      throw UsageError("layers-split lists {} devices with {} layers in all: expected {} devices with {} layers",
                       s.layers_of_device.size(), sum, n_gpus, wanted);
    if (!wishes.gpu_layers) wishes.gpu_layers = c.n_layers;
  }
  // With patterns only, all other blocks are on GPUs.
  if (!s.places.empty() && !wishes.gpu_layers) wishes.gpu_layers = c.n_layers;
  if (!s.places.empty() && !wishes.host_experts) wishes.host_experts = 0;
  return wishes;
}

// The inputs of all layers are computed where the embedding is. RWKV's layers read the values of the first layer, and
// Zamba's the embeddings.
void check_layer_inputs(const Config& c, const Split& split) {
  if (split.n_devices() == 1) return;
  if (c.part<Rwkv7Config>().head_dim > 0 || c.part<SharedTransformerConfig>().n_blocks > 0)
    throw Error("the layers of this model read what its first layers made, so they must be on one device, but the "
                "model needs several: use a smaller quantization, or one device");
  if (c.part<LayerInputsConfig>().width > 0)
    throw Error("this model has an input for each layer, so its layers must be on one device, but the model needs "
                "several: use a smaller quantization, or one device");
}

// A layer that reads the keys of an earlier layer reads them from its own device.
void check_shared_keys(const Config& c, const Split& split) {
  for (int layer = 0; layer < c.n_layers; ++layer)
    if (const int earlier = c.layer(layer).kv_layer; earlier >= 0 && split.layer(layer, 0) != split.layer(earlier, 0))
      throw Error(
          "layers {} and {} share keys and values, so they must be on one device, but the model needs several: use a "
          "smaller quantization, or one device",
          earlier, layer);
}

}  // namespace

std::vector<TensorPlace> parse_tensor_places(const std::string& list) {
  std::vector<TensorPlace> places;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string item = list.substr(begin, end - begin);
    const size_t equals = item.rfind('=');
    const std::string place = equals == item.npos ? "" : lower(item.substr(equals + 1));
    const bool on_gpu = place.starts_with("cuda") || place == "gpu";
    if (place != "cpu" && !on_gpu)
      throw UsageError("override-tensor '{}': give PATTERN=CPU or PATTERN=CUDA0", printable(item));
    try {
      places.push_back({std::make_shared<const Pattern>(item.substr(0, equals)), !on_gpu});
    } catch (const Error& error) {
      throw UsageError("override-tensor: {}", error.what());
    }
    begin = end + 1;
  }
  return places;
}

Split choose_split(const Config& c, WeightSource& source, std::span<const DeviceMemory> gpus,
                   const std::function<DeviceMemory()>& make_host, const RunnerOptions& o) {
  const bool asks = o.layers_on.asks();
  const bool is_cpu = gpus[0].name == "cpu";
  if (gpus.size() == 1 && (is_cpu || (!asks && (gpus[0].backend->is_host() || fits_whole(c, source, gpus[0], o)))))
    return Split(c);
  const DeviceMemory host = make_host();
  const auto needs = needs_of(c, source, *gpus[0].backend, *host.backend, o);
  SplitLimits limits{.gpu_bytes = {}, .host_bytes = room_on(c, host, o)};
  for (const DeviceMemory& gpu : gpus) limits.gpu_bytes.push_back(room_on(c, gpu, o));
  const auto split = plan_split(needs, limits, wishes_of(c, o, gpus.size()));
  std::vector<std::string> names;
  for (const DeviceMemory& gpu : gpus) names.push_back(gpu.name);
  names.push_back(host.name);
  if (split) check_shared_keys(c, *split), check_layer_inputs(c, *split);
  if (!split) {
    size_t all = 0, room = limits.host_bytes;
    for (const BlockNeeds& need : needs) all += need.host_bytes;
    for (const size_t bytes : limits.gpu_bytes) room += bytes;
    throw MemoryError(
        "the model needs {} with a context of {} tokens, but only {} are free on {} after the buffers of a step: use a "
        "smaller quantization, a smaller model or a shorter context",
        human_bytes(all), tokens_wanted(c, o), human_bytes(room), fmt::join(names, " and "));
  }
  if (!asks && gpus.size() == 1)
    log_warn("the model does not fit {}, which has {} free: {}", gpus[0].name, human_bytes(gpus[0].available),
             split_text(*split, names));
  return *split;
}

void choose_copies(const Config& c, WeightSource& source, Backend& gpu, size_t memory, size_t n_gpus,
                   const RunnerOptions& o) {
  if (!o.backend.copies.empty() || gpu.is_host()) return;
  limit_copies(source, c, gpu, memory, n_gpus);
  if (n_gpus == 1 && !fits_whole(c, source, {.backend = &gpu, .available = memory}, o)) gpu.save_memory();
}

std::string split_text(const Split& split, std::span<const std::string> names) {
  const auto name = [&](int device) { return names[static_cast<size_t>(device)]; };
  Split layers = split;  // each layer on the device of its attention
  std::vector<std::string> parts;
  const auto add = [&](const char* what, int first, int last, int device) {
    parts.push_back(first == last ? fmt::format("{} {} on {}", what, first, name(device))
                                  : fmt::format("{}s {} to {} on {}", what, first, last, name(device)));
  };
  const auto add_ranges = [&](const char* what, auto&& device_of /* -1: none */) {
    for (int first = 0; first < layers.n_layers();) {
      int last = first;
      while (last + 1 < layers.n_layers() && device_of(last + 1) == device_of(first)) ++last;
      if (device_of(first) >= 0) add(what, first, last, device_of(first));
      first = last + 1;
    }
  };
  const auto last = [&](int layer) { return layers.layer(layer, layers.numbers.n_of(layer) - 1); };
  add_ranges("layer", [&](int layer) { return layers.layer(layer, 0); });
  add_ranges("feed-forward of layer",
             [&](int layer) { return last(layer) == layers.layer(layer, 0) ? -1 : last(layer); });
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace ingot
