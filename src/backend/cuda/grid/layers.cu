// The decoder layers of a few tokens on the whole grid (grid/layers.h).
#include <algorithm>
#include <bit>

#include "backend/cuda/grid/attention.cuh"
#include "backend/cuda/memory.h"

namespace ingot::cuda {

using namespace grid;

namespace {

constexpr size_t kStaticShared = 3072;  // at least what the kernel declares, and the driver's

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The phases of all layers, run by the warps that compute.
template <int kDim, class K>
__device__ __forceinline__ void compute(const Block& b, Ring ring) {
  const Params& p = b.p;
  const Task task(p, b.layer(0).window, b.warp);
#pragma unroll 1
  for (int i = 0; i < p.step.n_layers; ++i) {
    const DenseLayer& layer = b.layer(i);
#pragma unroll 1
    for (int phase = 0; phase < kPhases; ++phase) {
      if (phase == kOut) {
        MARK(50);
        const auto ready = [&] { sync_grid(p); };
        task.runs ? Attention<kDim, K>(b, layer, task).run(ready) : ready();
      }
      product(b, ring, layer, phase, [&] {
        if (i > 0 || phase > 0) sync_grid(p);
      });
    }
  }
}
#endif

template <int kDim, class K>
__global__ void __launch_bounds__(kThreads + kCopyThreads, 1) layers_kernel(const __grid_constant__ Params p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char shared[];
  __shared__ __align__(8) uint64_t barriers[2 * kMaxSlots];
  __shared__ uint32_t table[256];
  __shared__ float squares[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const uint32_t barriers_at = shared_address(barriers);
  if (thread < p.n_slots) {
    init_barrier(barriers_at + 8 * thread, 1);
    init_barrier(barriers_at + 8 * (kMaxSlots + thread), kWarps);
  }
  const auto* layers = reinterpret_cast<const uint64_t*>(p.step.layers);
  for (int i = thread; i < p.step.n_layers * static_cast<int>(sizeof(DenseLayer) / 8); i += kThreads + kCopyThreads)
    reinterpret_cast<uint64_t*>(shared + p.layers)[i] = layers[i];
  if (thread < 256) {
    const auto byte = [&](int code) { return quant::codebook_entry(p.step.codebook_low, p.step.codebook_high, code) & 255; };
    table[thread] = static_cast<uint32_t>(byte(thread & 15) | byte(thread >> 4) << 8);
  }
  fence_barriers();
  __syncthreads();
  const Ring ring(p, shared_address(shared), barriers_at);
  const Block b{p, shared, table, squares, thread / 32, thread % 32};
  if (b.warp >= kWarps) {
    shrink_registers<24>();
    if (b.warp == kWarps) copy_weights(p, &b.layer(0), ring, b.lane);
    return;
  }
  grow_registers<112>();
  compute<kDim, K>(b, ring);
#endif
}

int divide_up(int a, int b) { return (a + b - 1) / b; }
int up_to(int n, int unit) { return divide_up(n, unit) * unit; }

// The weights of a phase: the first, and how many.
std::pair<int, int> weights_of(int phase) {
  return phase == kQkv ? std::pair{kWeightQ, 3} : phase == kOut ? std::pair{kWeightOut, 1} : phase == kGateUp ? std::pair{kWeightGate, 2} : std::pair{kWeightDown, 1};
}

// Bytes of a chunk of one unit.
int unit_bytes(const DenseStep& step, int phase, int parts) {
  const auto [first, n] = weights_of(phase);
  int most = 0;
  for (int l = 0; l < step.n_layers; ++l)
    for (int i = first; i < first + n; ++i) {
      const LayerProduct& w = step.layers[l].products[i];
      const int rows = kTileRows * row_bytes(parts);
      most = std::max(most, w.layout == Layout::kDense     ? rows
                            : w.layout == Layout::kFloat8 ? rows + parts * kTileRows * 4
                                                          : parts * (code_bytes(w.layout) + scale_bytes(w)));
    }
  return up_to(most, 128);
}

// Splits a row of n_steps evenly: as few chunks as possible, of the same size.
PhasePlan plan_of(const DenseStep& step, int phase, int n_blocks) {
  const DenseShape& s = step.shape;
  PhasePlan plan{};
  plan.n_in = phase == kOut ? s.n_heads * s.head_dim : phase == kDown ? s.ffn : s.dim;
  plan.step_columns = step_columns(step.layers[0].products[weights_of(phase).first].layout);
  plan.n_steps = divide_up(plan.n_in, plan.step_columns);
  plan.n_chunks = divide_up(plan.n_steps, kWarps);
  plan.parts = divide_up(plan.n_steps, plan.n_chunks);
  plan.at_once = kWarps / plan.parts;
  const int n_tiles = (phase == kQkv      ? (s.n_heads + 2 * s.n_kv_heads) * s.head_dim
                       : phase == kGateUp ? s.ffn
                                          : s.dim) /
                      kTileRows;
  // The sums of queries, keys and values may lie in two planes, if that leaves fewer blocks without work.
  const auto idle = [&](int planes) { return divide_up(n_tiles * planes, n_blocks) * n_blocks - n_tiles * planes; };
  const bool halves = phase == kQkv && plan.at_once == 1 && plan.n_chunks % 2 == 0 && idle(2) < 2 * idle(1);
  plan.n_planes = halves ? 2 : 1;
  plan.n_units = n_tiles * plan.n_planes;
  plan.unit_bytes = unit_bytes(step, phase, plan.parts);
  plan.input_bytes = input_bytes(step.layers[0].products[weights_of(phase).first].layout);
  return plan;
}

// Offsets in the scratch. The counters have the same place in all steps, because each step leaves zeros there.
struct Scratch {
  size_t heads, attended, hidden, parts, stats, bytes;
};
constexpr size_t kEnded = 256, kMaxKvHeads = 128, kCounters = kEnded + kMaxKvHeads * sizeof(unsigned);

// n_heads and n_kv_heads in columns.
Scratch scratch_of(int64_t heads, int64_t kv_heads, int64_t ffn, int64_t n_parts, int64_t head_dim) {
  Scratch at{};
  size_t end = kCounters;
  const auto take = [&](int64_t bytes) { return std::exchange(end, end + static_cast<size_t>((bytes + 255) / 256 * 256)); };
  at.heads = take(2 * (heads + 2 * kv_heads) * 4);
  at.attended = take(heads * 2);
  at.hidden = take(ffn * 2);
  at.parts = take(n_parts * head_dim * 4);
  at.stats = take(n_parts * 8);
  at.bytes = end;
  return at;
}

int splits_of(const DenseShape& s, int n_blocks) { return std::clamp(n_blocks / s.n_kv_heads, 1, 32); }

// Everything but the pointers to scratch. n_slots is 0 if the shape does not fit.
Params params_of(const DenseStep& step, const Device& device) {
  Params p{};
  p.step = step;
  const DenseShape& s = step.shape;
  p.n_blocks = device.n_multiprocessors();
  p.group = s.n_heads / s.n_kv_heads;
  p.block_shift = std::countr_zero(static_cast<unsigned>(step.kv.block_size));
  p.n_splits = splits_of(s, p.n_blocks);
  for (int phase = 0; phase < kPhases; ++phase) {
    p.phases[phase] = plan_of(step, phase, p.n_blocks);
    p.slot_bytes = std::max(p.slot_bytes, p.phases[phase].at_once * p.phases[phase].unit_bytes);
  }
  int input = TaskMemory::bytes(p.group, s.head_dim);
  for (const PhasePlan& plan : p.phases) input = std::max(input, kWarps * plan.n_chunks * plan.input_bytes);
  p.layers = 0;
  p.input = up_to(step.n_layers * static_cast<int>(sizeof(DenseLayer)), 128);
  p.sums = p.input + up_to(input, 128);
  constexpr int sums = 2 * kMaxBatch * 2 * kWarps * kTileRows * 4;
  p.ring = up_to(p.sums + sums, 128);
  const int room = static_cast<int>(device.most_shared() - kStaticShared) - p.ring;
  p.n_slots = std::clamp(room / p.slot_bytes, 0, kMaxSlots);
  p.end = p.ring + p.n_slots * p.slot_bytes;
  return p;
}

bool is_multiple(int n, int unit) { return n % unit == 0; }

// All weights of a phase have the same kind of rows; gate and up have the same layout.
bool weights_fit(const DenseShape& s, const DenseLayer& layer, const LayerProduct* first) {
  for (int i = 0; i < kLayerWeights; ++i) {
    const LayerProduct& w = layer.products[i];
    const int n_in = i == kWeightOut ? s.n_heads * s.head_dim : i == kWeightDown ? s.ffn : s.dim;
    if (is_rows(w.layout) && (!is_multiple(n_in, step_columns(w.layout)) || reinterpret_cast<uintptr_t>(w.codes) % 16 != 0))
      return false;
    if (is_rows(w.layout) != is_rows(first[i].layout) || step_columns(w.layout) != step_columns(first[i].layout)) return false;
  }
  const LayerProduct *w = layer.products, &gate = w[kWeightGate], &up = w[kWeightUp];
  return is_rows(w[kWeightQ].layout) == is_rows(w[kWeightK].layout) &&
         is_rows(w[kWeightQ].layout) == is_rows(w[kWeightV].layout) &&
         step_columns(w[kWeightQ].layout) == step_columns(w[kWeightK].layout) &&
         step_columns(w[kWeightQ].layout) == step_columns(w[kWeightV].layout) && gate.layout == up.layout &&
         gate.zero == up.zero && gate.has_min == up.has_min && gate.group16 == up.group16;
}

bool shape_fits(const DenseStep& step) {
  const DenseShape& s = step.shape;
  const DeviceKv& kv = step.kv;
  if (step.n_tokens != 1 || step.n_layers == 0) return false;
  if ((s.head_dim != 64 && s.head_dim != 128) || s.n_heads > kMaxGroup * s.n_kv_heads || !is_multiple(s.n_heads, s.n_kv_heads) ||
      s.n_kv_heads > static_cast<int>(kMaxKvHeads))
    return false;
  if (!is_multiple(s.dim, 32) || !is_multiple(s.ffn, 32)) return false;
  return dtype_bytes(kv.dtype) <= 2 && kv.n_parts == 2 && kv.head_dim == s.head_dim && is_multiple(kv.block_size, kStepKeys) &&
         std::has_single_bit(static_cast<unsigned>(kv.block_size));
}

template <class F>
void with_kernel(const DenseStep& step, F&& f) {
  with_small_type(step.kv.dtype, [&](auto* k) {
    using K = std::remove_pointer_t<decltype(k)>;
    step.shape.head_dim == 64 ? f(layers_kernel<64, K>) : f(layers_kernel<128, K>);
  });
}

}  // namespace

bool can_run_grid(const DenseStep& step, Device& device) {
  if (!device.is_hopper() || !shape_fits(step)) return false;
  for (int l = 0; l < step.n_layers; ++l)
    if (step.layers[l].window != step.layers[0].window || !weights_fit(step.shape, step.layers[l], step.layers[0].products))
      return false;
  return params_of(step, device).n_slots >= 3;
}

size_t grid_scratch_bytes(int width, int head_dim, const DeviceLimits& device) {
  if (!device.is_hopper()) return 0;
  const int64_t dim = std::max(head_dim, 1);
  return scratch_of(width, width, width, int64_t{device.n_multiprocessors} * kMaxGroup, dim).bytes;
}

void run_grid(const DenseStep& step, void* scratch, Device& device) {
  Params p = params_of(step, device);
  char* const base = static_cast<char*>(scratch);
  const DenseShape& s = step.shape;
  const Scratch at = scratch_of(int64_t{s.n_heads} * s.head_dim, int64_t{s.n_kv_heads} * s.head_dim,
                                s.ffn, int64_t{s.n_heads} * p.n_splits, s.head_dim);
  p.barrier = reinterpret_cast<unsigned*>(base);
  p.ended = reinterpret_cast<unsigned*>(base + kEnded);
  p.heads = reinterpret_cast<float*>(base + at.heads);
  p.attended = reinterpret_cast<half*>(base + at.attended);
  p.hidden = reinterpret_cast<half*>(base + at.hidden);
  p.parts = reinterpret_cast<float*>(base + at.parts);
  p.stats = reinterpret_cast<float2*>(base + at.stats);
  with_kernel(step, [&](auto kernel) {
    device.prepare(reinterpret_cast<const void*>(kernel), static_cast<size_t>(p.end), 1);
    // All blocks run at the same time, or none: other streams may use the GPU too.
    cudaLaunchAttribute cooperative{};
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(p.n_blocks));
    config.blockDim = dim3(kThreads + kCopyThreads);
    config.dynamicSmemBytes = static_cast<size_t>(p.end);
    config.stream = device.stream();
    config.attrs = &cooperative;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, p);
  });
}

}  // namespace ingot::cuda
