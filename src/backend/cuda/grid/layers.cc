// Decides which layers run on the whole GPU (grid/layers.h), and launches their kernel.
#include "backend/cuda/grid/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <climits>

#include "backend/cuda/attention/cache_map.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/grid/shape.h"
#include "backend/cuda/specialised.h"

namespace ingot::cuda {
namespace {

constexpr size_t kStaticShared = 3072;  // for the kernel's static memory and the driver's
constexpr size_t kChoiceShared = sizeof(int) * 2 * grid::kMaxUsed * grid::kMaxRows;
constexpr int kMaxGridExperts = 512;

bool is_multiple(int n, int unit) { return n % unit == 0; }

grid::WeightKind kind_of(const LayerProduct& w) { return {w.layout, w.has_min, w.group16, w.zero}; }

static_assert(kMaxGridTokens == grid::kMaxRows);

int max_rows_of(const LayersStep& step) { return step.n_tokens > 1 ? grid::kMaxRows : 1; }

// Of the ring. With several tokens and two slots, layers in FP8 are faster than single kernels, layers in Q8_0 are not.
int fewest_slots(const grid::Shape& s) { return s.has_rows() && grid::has_float8(s) ? 2 : 3; }

int kv_row_bytes(const LayersStep& step) { return step.kv.head_dim * static_cast<int>(dtype_bytes(step.kv.dtype)); }

grid::Shape shape_of(const LayersStep& step, const DeviceLimits& device) {
  const LayersShape& s = step.shape;
  const StepLayer& first = step.layers[0];
  const int row_bytes = kv_row_bytes(step);
  grid::Shape shape{.dim = s.dim,
                    .ffn = s.ffn,
                    .n_heads = s.n_heads,
                    .n_kv_heads = s.n_kv_heads,
                    .head_dim = s.head_dim,
                    .rot_dim = s.rot_dim,
                    .half_split = s.half_split,
                    .q_norm = first.q_norm != nullptr,
                    .k_norm = first.k_norm != nullptr,
                    .biases = false,
                    .act = s.act,
                    .n_layers = step.n_layers,
                    .window = first.window,
                    .kv_block = step.kv.block_size,
                    .n_experts = s.n_experts,
                    .n_used = s.n_used,
                    .sigmoid = s.sigmoid,
                    .normalize = s.normalize,
                    .n_blocks = device.n_multiprocessors,
                    .panels_at_once = row_bytes / grid::panel_bytes(row_bytes),
                    .max_rows = max_rows_of(step)};
  shape.shared_bytes = static_cast<int>(device.most_shared - kStaticShared -
                                        (s.n_experts > 0 && step.n_tokens > 1 ? kChoiceShared : 0)) -
                       4 * grid::fresh_values(shape);
  for (int i = 0; i < kLayerWeights; ++i) shape.kinds[i] = kind_of(first.products[i]);
  for (int l = 0; l < step.n_layers; ++l)
    for (int i = kWeightQ; i <= kWeightV; ++i) shape.biases |= step.layers[l].products[i].bias != nullptr;
  if (grid::places_of(shape).n_slots < fewest_slots(shape)) shape.panels_at_once = 1;
  return shape;
}

// Whether all layers, and the weights of one phase, have the same kinds of weights.
bool kinds_fit(const LayersStep& step, const grid::Shape& shape) {
  for (int phase = 0; phase < grid::kPhases; ++phase) {
    const grid::WeightKind& first = shape.kinds[grid::first_weight(phase)];
    if (first.layout == Layout::kDense) return false;      // separate kernels are as fast (docs/notes)
    if (first.layout == Layout::kCodesE4M3) return false;  // the kernel multiplies codes as integers
    if (shape.n_experts > 0 && phase >= grid::kGateUp && first.is_float8()) return false;
    // With several rows, the table of levels is that of products of all rows.
    if (shape.rows_of(phase) < shape.max_rows && first.layout == Layout::kCodebook4) return false;
    for (int i = 0; i < grid::n_weights(phase); ++i)
      if (!(shape.kinds[grid::first_weight(phase) + i] == first)) return false;
  }
  return std::all_of(step.layers, step.layers + step.n_layers, [&](const StepLayer& layer) {
    for (int i = 0; i < kLayerWeights; ++i)
      if (!(kind_of(layer.products[i]) == shape.kinds[i]) ||
          reinterpret_cast<uintptr_t>(layer.products[i].codes) % 16 != 0)
        return false;
    return layer.window == shape.window && (layer.q_norm != nullptr) == shape.q_norm &&
           (layer.k_norm != nullptr) == shape.k_norm;
  });
}

bool experts_fit(const LayersShape& s) {
  return s.n_experts == 0 ||
         (s.n_used <= grid::kMaxUsed && s.n_experts <= kMaxGridExperts && is_multiple(s.ffn, kTileCols));
}

bool shape_fits(const LayersStep& step) {
  const LayersShape& s = step.shape;
  const DeviceKv& kv = step.kv;
  return experts_fit(s) && step.n_tokens <= grid::kMaxRows && step.n_layers > 0 && step.n_layers <= grid::kMaxLayers &&
         (s.head_dim == 64 || s.head_dim == 128) && is_multiple(s.n_heads, s.n_kv_heads) &&
         s.n_heads <= grid::kMaxGroup * s.n_kv_heads && is_multiple(s.dim, 32) && is_multiple(s.ffn, 32) &&
         dtype_bytes(kv.dtype) <= 2 && !has_scales(kv.dtype) && kv.n_parts == 2 && kv.head_dim == s.head_dim &&
         is_multiple(kv.block_size, grid::kStepKeys) && kv.n_rows() / 8 <= INT32_MAX;
}

std::string kinds_source(const grid::Shape& s) {
  std::string text;
  for (const grid::WeightKind& k : s.kinds)
    text += fmt::format("{{{}, {}, {}, {}}}, ", name_of(k.layout), k.has_min, k.group16, k.zero);
  return text;
}

const char* element_of(DType dtype) {
  return dtype == DType::kBF16 ? "CacheBfloat" : dtype == DType::kE4M3 ? "CacheFloat8" : "CacheHalf";
}

// Byte offsets in the scratch. heads and kv_heads are in columns.
struct Scratch {
  size_t heads, attended, hidden, logits, squares, parts, stats, bytes;
};
// The barriers come first, at a fixed place, because each step leaves them ready for the next one.
constexpr size_t kEnded = 256, kMaxTasks = 256, kCounters = kEnded + kMaxTasks * sizeof(unsigned);

Scratch scratch_of(int64_t n_rows, int64_t dim, int64_t heads, int64_t kv_heads, int64_t ffn, int64_t n_parts,
                   int64_t head_dim) {
  Scratch at{};
  size_t end = kCounters;
  const auto take = [&](int64_t bytes) {
    return std::exchange(end, end + static_cast<size_t>((bytes + 255) / 256 * 256));
  };
  at.heads = take(n_rows * (n_rows > 1 ? 1 : 2) * (heads + 2 * kv_heads) * 4);
  at.attended = take(n_rows * heads * 2);
  at.hidden = take(n_rows * ffn * 2);
  at.logits = take(n_rows * kMaxGridExperts * 8);
  at.squares = take(dim / kTileRows * grid::kMaxRows * 4);
  at.parts = take(n_parts * head_dim * 4);
  at.stats = take(n_parts * 8);
  at.bytes = end;
  return at;
}

}  // namespace

std::string grid_source(const LayersStep& step, const DeviceLimits& device) {
  if (!device.chip().runs_grid || !shape_fits(step) ||
      step.n_tokens * step.shape.n_kv_heads > std::min<int>(kMaxTasks, device.n_multiprocessors))
    return "";
  const grid::Shape s = shape_of(step, device);
  if (!kinds_fit(step, s) || grid::places_of(s).n_slots < fewest_slots(s)) return "";
  return fmt::format(
      "#include \"backend/cuda/grid/layers.cuh\"\nusing namespace ingot::cuda;\nusing namespace ingot::cuda::grid;\n"
      "struct Own {{\n  static constexpr Shape kShape{{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, "
      "{}, {}, {}, {}, {}, {}, {{{}}}}};\n}};\n"
      "extern \"C\" __global__ void __launch_bounds__(kThreads + kCopyThreads, 1) specialised(const __grid_constant__ "
      "Params p) {{\n  run<Own, {}>(p);\n}}\n",
      s.dim, s.ffn, s.n_heads, s.n_kv_heads, s.head_dim, s.rot_dim, s.half_split, s.q_norm, s.k_norm, s.biases, s.act,
      s.n_layers, s.window, s.kv_block, s.n_experts, s.n_used, s.sigmoid, s.normalize, s.n_blocks, s.shared_bytes,
      s.panels_at_once, s.max_rows, kinds_source(s), element_of(step.kv.dtype));
}

int longest_on_grid(const LayersStep& step) {
  // Measured on an H200 (docs/notes). With one token, both are equally fast at 128 MiB of keys and values of a layer:
  // 32k tokens of llama-3.1-8b, 66k of qwen3-30b-a3b. Several tokens still gain at 64 MiB, and with experts at 128 MiB,
  // because experts gain more. With five or more tokens of large layers, products with minima take longer than reading
  // their weights, and 8-bit floats were measured up to 32 MiB only.
  constexpr int64_t kMiB = 1 << 20, kLargeLayer = 100'000'000;  // weights
  const LayersShape& s = step.shape;
  const int64_t n_weights = int64_t{s.dim} * ((2 * s.n_heads + 2 * s.n_kv_heads) * s.head_dim + 3 * s.ffn);
  const grid::WeightKind gate = kind_of(step.layers[0].products[kWeightGate]);
  const bool is_slow = step.n_tokens > 4 && n_weights > kLargeLayer;
  if (is_slow && gate.has_min) return 0;
  const int64_t max_bytes = step.n_tokens == 1 || s.n_experts > 0 ? 128 * kMiB
                            : is_slow && gate.is_float8()         ? 32 * kMiB
                                                                  : 64 * kMiB;
  const int64_t n_read =
      max_bytes / (int64_t{step.n_tokens} * step.kv.n_parts * step.kv.n_kv_heads * kv_row_bytes(step));
  const int window = step.layers[0].window;
  return window > 0 && window <= n_read ? INT_MAX : static_cast<int>(std::min<int64_t>(n_read, INT_MAX));
}

size_t grid_scratch_bytes(int width, int head_dim, const DeviceLimits& device) {
  if (!device.chip().runs_grid) return 0;
  const int64_t dim = std::max(head_dim, 1);
  return scratch_of(grid::kMaxRows, width, width, width, width, int64_t{device.n_multiprocessors} * grid::kMaxGroup,
                    dim)
      .bytes;
}

void run_grid(const void* kernel, const LayersStep& step, void* scratch, Device& device) {
  const grid::Shape shape = shape_of(step, device.limits());
  const LayersShape& s = step.shape;
  grid::Params p{};
  for (int l = 0; l < step.n_layers; ++l) {
    const StepLayer& from = step.layers[l];
    grid::Layer& to = p.layers[l];
    for (int i = 0; i < kLayerWeights; ++i) {
      // Products of one row multiply levels of the format.
      const int phase = i < kWeightOut ? grid::kQkv : i == kWeightOut ? grid::kOut : grid::kGateUp;
      const float unit = shape.rows_of(phase) > 1 ? 1.0f : level_unit(from.products[i].layout);
      to.products[i] = {from.products[i].codes, from.products[i].scales, from.products[i].bias,
                        from.products[i].factor * unit};
    }
    to.attention_norm = from.attention_norm, to.ffn_norm = from.ffn_norm;
    to.q_norm = from.q_norm, to.k_norm = from.k_norm, to.kv_layer = from.kv_layer;
    to.router = static_cast<const half*>(from.router.w);
    to.router_bias = from.router.bias, to.choice_bias = from.router.choice_bias;
  }
  p.n_rows = step.n_tokens;
  p.x = step.x, p.x_stride = step.x_stride;
  p.angles = step.angles, p.angle_stride = step.angle_stride;
  const int row_bytes = kv_row_bytes(step);
  p.kv_map = cache_map(step.kv.data, step.kv.n_rows(), row_bytes, grid::panel_bytes(row_bytes), shape.panels_at_once);
  p.kv = step.kv.data, p.kv_blocks = step.kv.n_blocks;
  p.route_scale = s.route_scale;
  p.eps = s.eps, p.head_eps = s.head_eps, p.score_scale = s.score_scale;
  p.codebook_low = step.codebook_low, p.codebook_high = step.codebook_high;
  p.positions = step.batch.positions, p.token_seq = step.batch.token_seq, p.q_start = step.batch.q_start;
  p.block_table = step.batch.block_table;
  p.max_blocks = step.batch.max_blocks;
  char* const base = static_cast<char*>(scratch);
  const Scratch at =
      scratch_of(step.n_tokens, s.dim, int64_t{s.n_heads} * s.head_dim, int64_t{s.n_kv_heads} * s.head_dim,
                 shape.hidden(), int64_t{step.n_tokens} * s.n_heads * shape.n_splits(step.n_tokens), s.head_dim);
  p.barrier = reinterpret_cast<unsigned*>(base);
  p.ended = reinterpret_cast<unsigned*>(base + kEnded);
  p.heads = reinterpret_cast<float*>(base + at.heads);
  p.attended = reinterpret_cast<half*>(base + at.attended);
  p.hidden = reinterpret_cast<half*>(base + at.hidden);
  p.logits = reinterpret_cast<int64_t*>(base + at.logits);
  p.squares = reinterpret_cast<float*>(base + at.squares);
  p.parts = reinterpret_cast<float*>(base + at.parts);
  p.stats = reinterpret_cast<float2*>(base + at.stats);
  // All blocks run at the same time, or none does, because other streams may use the GPU, too.
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.n_blocks));
  config.blockDim = dim3(grid::kThreads + grid::kCopyThreads);
  config.dynamicSmemBytes = static_cast<size_t>(grid::places_of(shape).end);
  config.stream = device.stream();
  config.attrs = &cooperative;
  config.numAttrs = 1;
  void* arguments[] = {&p};
  cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace ingot::cuda
