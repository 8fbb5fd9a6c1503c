#include "model/devices/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/memory_error.h"
#include "base/system.h"
#include "model/devices/ranks.h"
#include "model/program/decoder_program.h"
#include "model/program/draft_head.h"
#include "model/program/kv_caches.h"

namespace ingot {
namespace {

constexpr int64_t kSmallestContext = 512;
constexpr int kSmallestChunk = 512;
constexpr int64_t kMaxTokens = 1 << 30;
constexpr int64_t kUsefulTokens = 2048;  // of KV cache, for each sequence of a server

int64_t whole_blocks(int64_t n_tokens, int block_size) { return (n_tokens + block_size - 1) / block_size; }

bool takes_half(const DeviceMemory& device) { return device.take == Take::kHalf; }
bool is_host(const DeviceMemory& device) { return device.backend == nullptr || device.backend->is_host(); }

// Plans for one model on its devices. The options change from plan to plan.
class Planner {
 public:
  Planner(const Config& config, const Split& split, std::span<const DeviceMemory> devices)
      : c_(config), split_(split), devices_(devices), kinds_(kv_caches(config)) {
    for (size_t i = 0; i < devices.size(); ++i) {
      parts_.push_back(split.part(static_cast<int>(i)));
      shapes_.push_back(ingot::kv_shapes(config, parts_.back(), 1, {}));
    }
    all_shapes_ = ingot::kv_shapes(config, {}, 1, {});
  }

  MemoryPlan plan(const RunnerOptions& options) const;
  std::vector<MemoryPlan> all_that_fit(const RunnerOptions& options) const;
  int choose_sequences(RunnerOptions options) const;

 private:
  static size_t left_of(size_t available, size_t taken) { return available - std::min(available, taken); }
  size_t left_by_weights(size_t i) const { return left_of(devices_[i].available, devices_[i].weights.total()); }
  // What stays free, because the sizes of a plan are not exact and other programs use the device.
  size_t spare(size_t i) const { return devices_[i].take == Take::kAll ? 0 : devices_[i].available / 20; }
  // With ranks, each plans for its own device, such as cuda:1.
  std::string name_of(size_t i) const {
    const bool is_only = devices_.size() == 1 && devices_[i].name.find(':') == std::string::npos;
    return is_only ? "the device" : devices_[i].name;
  }

  // The caches of a device, or all_shapes_, for these options. n_tokens: in layers without a window.
  std::vector<KvShape> sized(std::vector<KvShape> shapes, const RunnerOptions& o, int64_t n_tokens) const {
    for (KvShape& shape : shapes) {
      check_kv_types(shape.values_are_keys, o.kv_dtype);
      shape.block_size = o.block_size, shape.dtype = o.kv_dtype;
    }
    set_blocks(shapes, kinds_, {n_tokens, o.max_seqs, o.max_batch_tokens, c_.max_source_rows});
    // The options, or the memory, give the first cache a size.
    if (o.n_kv_tokens > 0 || o.fills_memory())
      shapes.front().n_blocks = static_cast<int>(whole_blocks(n_tokens, o.block_size));
    return shapes;
  }

  // The bytes of the caches, with the backend's padding. A draft head adds a KV cache.
  size_t kv_bytes(size_t i, std::span<const KvShape> shapes) const {
    const Backend* backend = devices_[i].backend;
    size_t bytes = 0;
    const auto add = [&](const KvShape& one) {
      if (one.n_layers == 0) return;
      if (backend != nullptr) check_kv_types(*backend, one.dtype);
      bytes += backend != nullptr ? backend->kv_bytes(one) : one.bytes();
    };
    for (const KvShape& shape : shapes) add(shape);
    if (c_.draft_head) add(draft_kv_shape(*c_.draft_head, shapes.front()));
    return bytes;
  }
  size_t state_bytes(size_t i, const StateShape& shape) const {
    const Backend* backend = devices_[i].backend;
    return !shape ? 0 : backend != nullptr ? backend->state_bytes(shape) : shape.bytes();
  }
  size_t state_bytes(size_t i, int n_slots) const { return state_bytes(i, state_shape(c_, n_slots, parts_[i])); }

  int64_t tokens_in(const std::vector<size_t>& bytes, const RunnerOptions& o) const;
  int choose_snapshots(const RunnerOptions& o) const;
  int64_t tokens_held(const RunnerOptions& o, int n_ctx) const;
  MemoryPlan plan_of(const RunnerOptions& o, int n_ctx, int64_t n_tokens) const;
  RunnerOptions with_batch_tokens(RunnerOptions o) const;
  std::vector<size_t> left_for_kv(const RunnerOptions& o) const;
  bool has_room_for_states(const RunnerOptions& o) const;

  const Config& c_;
  const Split& split_;
  const std::span<const DeviceMemory> devices_;
  const std::vector<KvCacheKind> kinds_;
  std::vector<OwnParts> parts_;               // of each device
  std::vector<std::vector<KvShape>> shapes_;  // of each device
  std::vector<KvShape> all_shapes_;           // of all devices
};

// The most tokens for which the caches fit these sizes, one size for each device. In whole blocks.
int64_t Planner::tokens_in(const std::vector<size_t>& bytes, const RunnerOptions& o) const {
  const auto fits = [&](int64_t n_blocks) {
    for (size_t i = 0; i < bytes.size(); ++i)
      if (kv_bytes(i, sized(shapes_[i], o, n_blocks * o.block_size)) > bytes[i]) return false;
    return true;
  };
  int64_t low = 0, high = kMaxTokens / o.block_size;  // low fits; nothing above high fits
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    fits(middle) ? low = middle : high = middle - 1;
  }
  return low * o.block_size;
}

// Two checkpoints for each sequence (the ends of its prompt and of its answer) and two for prefixes that many sequences
// share, as far as they fit in an eighth of the memory that the weights leave.
int Planner::choose_snapshots(const RunnerOptions& o) const {
  if (o.n_snapshots >= 0 || !state_shape(c_, 1)) return std::max(0, o.n_snapshots);
  size_t n = 2 * static_cast<size_t>(o.max_seqs) + 2;
  for (size_t i = 0; i < devices_.size(); ++i)
    if (const size_t slot_bytes = state_bytes(i, 1) - state_bytes(i, 0); slot_bytes > 0)
      n = std::min(n, left_by_weights(i) / 8 / slot_bytes);
  return static_cast<int>(n);
}

// The tokens of a sequence of n_ctx that the first pool holds at once. If every layer has a window: the window, the
// tokens that two steps in flight write, and partly used blocks at both ends.
int64_t Planner::tokens_held(const RunnerOptions& o, int n_ctx) const {
  const int64_t window = kinds_.front().window;
  return window == 0 ? n_ctx
                     : std::min<int64_t>(n_ctx, window + 2 * int64_t{o.max_batch_tokens} + 3 * int64_t{o.block_size});
}

// The plan for a pool of n_tokens and sequences of up to n_ctx.
MemoryPlan Planner::plan_of(const RunnerOptions& o, int n_ctx, int64_t n_tokens) const {
  const int n_states = o.max_seqs + choose_snapshots(o);
  MemoryPlan plan{.n_ctx = n_ctx,
                  .kv = sized(all_shapes_, o, n_tokens),
                  .states = state_shape(c_, n_states),
                  .max_batch_tokens =
                      static_cast<int>(std::min<int64_t>(o.max_batch_tokens, int64_t{n_ctx} * o.max_seqs)),
                  .max_seqs = o.max_seqs};
  plan.limits = {.max_tokens = plan.max_batch_tokens,
                 .max_seqs = plan.max_seqs,
                 .max_logits = o.logit_rows(),
                 .max_kv_len = n_ctx,
                 .n_vocab = c_.n_vocab,
                 .n_tables = static_cast<int>(plan.kv.size()),
                 .max_source_rows = c_.max_source_rows};
  for (size_t i = 0; i < devices_.size(); ++i) {
    const DeviceMemory& device = devices_[i];
    DevicePlan one{.name = device.name,
                   .kv = sized(shapes_[i], o, n_tokens),
                   .states = state_shape(c_, n_states, parts_[i]),
                   .weight_bytes = device.weights.total(),
                   .borrowed_bytes = device.weights.borrowed,
                   .available_bytes = device.available};
    one.kv_bytes = kv_bytes(i, one.kv);
    one.state_bytes = state_bytes(i, one.states);
    one.activation_bytes = step_bytes(c_, plan.limits, device.backend, split_, static_cast<int>(i));
    plan.weight_bytes += one.weight_bytes, plan.borrowed_bytes += one.borrowed_bytes;
    plan.kv_bytes += one.kv_bytes, plan.state_bytes += one.state_bytes;
    plan.activation_bytes += one.activation_bytes, plan.available_bytes += one.available_bytes;
    plan.devices.push_back(std::move(one));
  }
  return plan;
}

// Returns the options with the tokens of a step. If the options give none, this function chooses them.
RunnerOptions Planner::with_batch_tokens(RunnerOptions o) const {
  if (o.max_batch_tokens > 0) return o;
  const int n_ctx = o.n_ctx > 0 ? o.n_ctx : c_.n_ctx_train;
  const size_t head = static_cast<size_t>(split_.head());
  const Backend* backend = devices_[head < devices_.size() ? head : 0].backend;
  for (int n = backend != nullptr ? backend->prompt_chunk() : kSmallestChunk; n >= kSmallestChunk; n /= 2) {
    o.max_batch_tokens = std::max(n, o.max_seqs);
    const MemoryPlan plan = plan_of(o, n_ctx, 1);
    bool fits = true;
    for (size_t i = 0; i < devices_.size(); ++i)
      fits = fits && plan.devices[i].activation_bytes <= left_by_weights(i) / 8;
    if (fits) break;
  }
  return o;
}

// The bytes on each device that the KV cache may use. Throws Error if the weights and states do not fit.
std::vector<size_t> Planner::left_for_kv(const RunnerOptions& o) const {
  std::vector<size_t> left;
  const int n_snapshots = choose_snapshots(o), n_ctx = o.n_ctx > 0 ? o.n_ctx : c_.n_ctx_train;
  const MemoryPlan least = plan_of(o, n_ctx, 1);
  for (size_t i = 0; i < devices_.size(); ++i) {
    const size_t available = devices_[i].available, weights = devices_[i].weights.total();
    if (weights > available)
      throw MemoryError("the weights need {}, but {} has only {} free: use a smaller model or a smaller quantization",
                        human_bytes(weights), name_of(i), human_bytes(available));
    const size_t states = state_bytes(i, o.max_seqs + n_snapshots);
    if (states > available - weights)
      throw MemoryError(
          "the states of {} sequences and {} snapshots need {}, but only {} are free after the weights: allow fewer "
          "sequences or snapshots",
          o.max_seqs, n_snapshots, human_bytes(states), human_bytes(available - weights));
    const size_t free = available - weights - states;
    left.push_back(takes_half(devices_[i]) ? free / 2 : left_of(free, spare(i) + least.devices[i].activation_bytes));
  }
  return left;
}

MemoryPlan Planner::plan(const RunnerOptions& options) const {
  const RunnerOptions o = with_batch_tokens(options);
  const int64_t fit = tokens_in(left_for_kv(o), o);
  int n_ctx = o.n_ctx;
  if (n_ctx == 0) {
    const bool whole = tokens_held(o, c_.n_ctx_train) <= fit;
    n_ctx = static_cast<int>(whole ? c_.n_ctx_train
                                   : std::min<int64_t>(c_.n_ctx_train, std::clamp(fit, kSmallestContext, kMaxTokens)));
  }
  int64_t n_tokens = o.n_kv_tokens;
  const int64_t of_all = o.small_pool ? std::max<int64_t>(n_ctx, std::min<int64_t>(kUsefulTokens, n_ctx) * o.max_seqs)
                                      : int64_t{n_ctx} * o.max_seqs;
  const int64_t wanted = o.fills_memory() ? fit : std::min(fit, of_all);
  if (n_tokens == 0) n_tokens = std::clamp<int64_t>(wanted, tokens_held(o, n_ctx), kMaxTokens);
  MemoryPlan plan = plan_of(o, n_ctx, n_tokens);
  if (o.n_ctx == 0 && o.n_kv_tokens == 0 && !o.fills_memory()) return plan;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const DevicePlan& one = plan.devices[i];
    if (one.total_bytes() > one.available_bytes)
      throw MemoryError(
          "a KV cache of {} tokens needs {}, but only {} are free after the weights, of which activations need {}: use "
          "at most {} tokens of context, or fewer sequences at once",
          n_tokens, human_bytes(one.kv_bytes), human_bytes(one.available_bytes - one.weight_bytes),
          human_bytes(one.activation_bytes), takes_half(devices_[i]) ? 2 * fit : fit);
  }
  return plan;
}

// Whether states and snapshots leave most of the memory to the KV cache.
bool Planner::has_room_for_states(const RunnerOptions& o) const {
  const int n_states = o.max_seqs + choose_snapshots(o);
  for (size_t i = 0; i < devices_.size(); ++i)
    if (state_bytes(i, n_states) > left_by_weights(i) / 4) return false;
  return true;
}

int Planner::choose_sequences(RunnerOptions options) const {
  if (std::ranges::any_of(devices_, is_host)) return kFewSequences;
  const int64_t context = options.n_ctx > 0 ? options.n_ctx : c_.n_ctx_train;
  for (options.max_seqs = 256; options.max_seqs > kFewSequences; options.max_seqs /= 2) {
    if (options.max_batch_tokens > 0 && options.max_seqs > options.max_batch_tokens) continue;
    if (!has_room_for_states(options)) continue;
    const RunnerOptions o = with_batch_tokens(options);
    const int64_t n_tokens = o.n_kv_tokens > 0 ? o.n_kv_tokens : tokens_in(left_for_kv(o), o);
    if (n_tokens >= std::min(kUsefulTokens, context) * o.max_seqs) break;
  }
  return options.max_seqs;
}

std::vector<MemoryPlan> Planner::all_that_fit(const RunnerOptions& options) const {
  constexpr int kMaxSequences = 256;
  std::vector<MemoryPlan> plans;
  RunnerOptions o = with_batch_tokens(options);
  for (o.max_seqs = 1; o.max_seqs <= kMaxSequences; o.max_seqs *= 2) {
    const auto in_pool = [&](int n_ctx) {
      return whole_blocks(tokens_held(o, n_ctx), o.block_size) * o.block_size * o.max_seqs;
    };
    const auto plan = [&](int n_ctx) { return plan_of(o, n_ctx, in_pool(n_ctx)); };
    const auto fits = [&](int n_ctx) {
      if (in_pool(n_ctx) > kMaxTokens) return false;
      const MemoryPlan tried = plan(n_ctx);
      for (size_t i = 0; i < devices_.size(); ++i) {
        if (tried.devices[i].total_bytes() > devices_[i].available - spare(i)) return false;
      }
      return true;
    };
    int low = std::min(static_cast<int>(kSmallestContext), c_.n_ctx_train),
        high = c_.n_ctx_train;  // low fits; nothing above high fits
    if (!fits(low)) break;
    while (low < high) {
      const int middle = low + (high - low + 1) / 2;
      fits(middle) ? low = middle : high = middle - 1;
    }
    plans.push_back(plan(low));
  }
  return plans;
}

}  // namespace

void check_kv_types(const Backend& backend, KvTypes types) {
  if (!backend.keeps_kv_as(types))
    throw Error("a KV cache of {} needs a GPU: use a GPU, or q8_0, fp8 or q4_0 on the CPU", kv_type_name(types));
}

Take take_of(const Backend* backend, size_t n_devices, const RunnerOptions& options) {
  const bool is_gpu = backend != nullptr && !backend->is_host();
  if (n_devices > 1 ? is_gpu : options.fills_memory()) return Take::kAll;
  return is_gpu && !options.has_neighbours ? Take::kMost : Take::kHalf;
}

int choose_sequences(const Config& config, const Split& split, std::span<const DeviceMemory> devices,
                     const RunnerOptions& options) {
  return Planner(config, split, devices).choose_sequences(options);
}

MemoryPlan plan_memory(const Config& config, const Split& split, std::span<const DeviceMemory> devices,
                       const RunnerOptions& options) {
  return Planner(config, split, devices).plan(options);
}

MemoryPlan plan_memory(const Config& config, const WeightBytes& weights, size_t available, const RunnerOptions& options,
                       const Backend* backend) {
  const DeviceMemory device{"", backend, weights, available, take_of(backend, 1, options)};
  return plan_memory(config, Split(config), {&device, 1}, options);
}

std::vector<MemoryPlan> plans_that_fit(const Config& config, const Split& split, std::span<const DeviceMemory> devices,
                                       const RunnerOptions& options) {
  return Planner(config, split, devices).all_that_fit(options);
}

std::vector<MemoryPlan> plans_that_fit(const Config& config, const WeightBytes& weights, size_t available,
                                       const RunnerOptions& options, const Backend* backend) {
  const DeviceMemory device{"", backend, weights, available, take_of(backend, 1, options)};
  return plans_that_fit(config, Split(config), {&device, 1}, options);
}

DevicePlan plan_texts(const Config& config, const DeviceMemory& device, const StepLimits& limits) {
  const Backend& backend = *device.backend;
  const DType type = backend.act_dtype() == DType::kF32 ? DType::kF32 : DType::kF16;
  DevicePlan plan{.name = device.name,
                  .kv = kv_shapes(config, {}, kTextBlockSize, type),
                  .states = {},
                  .weight_bytes = device.weights.total(),
                  .borrowed_bytes = device.weights.borrowed,
                  .available_bytes = device.available};
  for (KvShape& shape : plan.kv) {
    shape.table = 0;  // all caches have the same blocks
    if (config.bidirectional) shape.n_layers = 1;
    shape.n_blocks = std::max(limits.max_tokens, limits.max_kv_len) / kTextBlockSize + limits.max_seqs;
    plan.kv_bytes += backend.kv_bytes(shape);
  }
  Program program = decoder_layers(config, {}, {}, nullptr, limits.max_kv_len);
  Buffers buffers(backend.act_dtype(), limits);
  program.lay_out(buffers);
  plan.activation_bytes = buffers.bytes() + backend.scratch_bytes(buffers.limits());
  if (plan.total_bytes() > plan.available_bytes)
    throw MemoryError(
        "the model needs {} ({} for weights, {} for texts of up to {} tokens), but {} has only {} free: use a smaller "
        "quantization, or shorter texts",
        human_bytes(plan.total_bytes()), human_bytes(plan.weight_bytes),
        human_bytes(plan.kv_bytes + plan.activation_bytes), limits.max_kv_len,
        plan.name.empty() ? "the device" : plan.name, human_bytes(plan.available_bytes));
  return plan;
}

size_t step_bytes(const Config& c, const StepLimits& limits, const Backend* backend, const Split& split, int device) {
  Program program = device_part(c, {}, {}, nullptr, limits.max_kv_len, split, device).program;
  Buffers buffers(backend != nullptr ? backend->act_dtype() : DType::kF32, limits);
  program.lay_out(buffers);
  StepLimits all = buffers.limits();
  const size_t of_head = c.draft_head ? draft_bytes(c, &all, buffers.act()) : 0;
  return buffers.bytes() + of_head + (backend != nullptr ? backend->scratch_bytes(all) : 0);
}

std::string MemoryPlan::table() const {
  const auto tokens_of = [](const KvShape& cache) { return int64_t{cache.n_blocks} * cache.block_size; };
  std::string cache_lines;
  for (const KvShape& cache : kv)
    if (kv.size() > 1)
      cache_lines += fmt::format("               {:>10}   {} layers: {} tokens of {}\n", human_bytes(cache.bytes()),
                                 cache.n_layers, tokens_of(cache), human_bytes(cache.token_bytes()));
  const std::string state_line =
      states ? fmt::format("  states       {:>10}   {} sequences and {} snapshots of {}\n", human_bytes(state_bytes),
                           max_seqs, n_snapshots(), human_bytes(states.slot_bytes()))
             : "";
  std::string device_lines;
  for (const DevicePlan& one : devices)
    if (devices.size() > 1)
      device_lines += fmt::format("  {:<11}  {:>10}   of {} free: weights {}, KV cache {}, activations {}\n", one.name,
                                  human_bytes(one.total_bytes()), human_bytes(one.available_bytes),
                                  human_bytes(one.weight_bytes), human_bytes(one.kv_bytes),
                                  human_bytes(one.activation_bytes));
  return fmt::format(
      "  weights      {:>10}\n"
      "  KV cache     {:>10}   {} tokens of {}, for contexts of up to {}\n"
      "{}{}"
      "  activations  {:>10}   steps of up to {} tokens, {} sequences\n"
      "  in all       {:>10}   of {} free\n"
      "{}",
      human_bytes(weight_bytes), human_bytes(kv_bytes), tokens_of(kv.front()), human_bytes(token_bytes_of(kv)), n_ctx,
      cache_lines, state_line,
      human_bytes(activation_bytes), max_batch_tokens, max_seqs, human_bytes(total_bytes()),
      human_bytes(available_bytes), device_lines);
}

}  // namespace ingot
