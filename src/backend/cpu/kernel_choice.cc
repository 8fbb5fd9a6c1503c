#include "backend/cpu/kernel_choice.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <mutex>
#include <vector>

#include "backend/cpu/isa.h"
#include "backend/cpu/packed_weight.h"
#include "quant/fill.h"

namespace ingot::cpu {
namespace {

constexpr int64_t kOut = 64, kIn = 2048;  // fits in the second-level cache, so that instructions limit the speed

using Times = std::array<double, kRowClasses>;

// Seconds of a product for each of kMeasuredRows: the minimum of several tries.
Times times_of(const Kernels& kernels, const Weight& host, Packing packing) {
  ThreadPool pool(1);
  const PackedWeight w = pack_weight(host, kernels, pool, packing);
  const int max_rows = kMeasuredRows[kRowClasses - 1];
  std::vector<float> x(max_rows * kIn), y(max_rows * kOut);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) - 8;
  const auto act_bytes = [](const ActLayout& layout) { return act_token_bytes(layout, kIn); };
  std::vector<uint8_t> act(max_rows * std::max({act_bytes(w.activations), act_bytes(w.few_activations),
                                            act_bytes(w.many_activations)}));
  Times times{};
  for (int i = 0; i < kRowClasses; ++i) {
    const int rows = kMeasuredRows[i], n_products = std::max(1, 64 / rows);
    const Unpacked how = unpacked_for(w, kernels, rows);
    const MatmulJob job = job_of(w, kernels, rows, act.data(), {y.data(), DType::kF32, rows, kOut, kOut}, how);
    for (int tile = 0; tile < job.tiling.n_tiles; ++tile) {
      const int begin = tile_begin(job.tiling, tile), end = tile_begin(job.tiling, tile + 1);
      kernels.pack_activations(&x[begin * kIn], kIn, end - begin, kIn, activations_of(w, how),
                               &act[begin * job.act_token_bytes]);
    }
    times[i] = 1e9;
    for (int attempt = 0; attempt < 4; ++attempt) {
      const auto start = std::chrono::steady_clock::now();
      for (int n = 0; n < n_products; ++n) kernels.matmul(job, {0, w.n_panels, 0, job.tiling.n_tiles});
      times[i] = std::min(times[i], std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
  }
  return times;
}

KernelChoice measure(Format format, Packing packing) {
  constexpr double kWorthIt = 0.95;  // a later set replaces an earlier one below this share of its time
  std::vector<uint8_t> bytes(kOut * row_bytes(format, kIn));
  fill_random(format, 1, bytes.data(), kOut * kIn / info(format).block_size, 1.0f);
  const Weight host{.format = format, .n_out = kOut, .n_in = kIn, .codes = bytes.data()};
  KernelChoice choice{};
  Times best{};
  for (const Kernels* kernels : measured_kernels()) {
    const Times times = times_of(*kernels, host, packing);
    for (int i = 0; i < kRowClasses; ++i) {
      if (choice.for_rows[i] != nullptr && times[i] > kWorthIt * best[i]) continue;
      choice.for_rows[i] = kernels;
      best[i] = times[i];
    }
  }
  return choice;
}

}  // namespace

std::span<const Kernels* const> measured_kernels() {
  const std::span<const Kernels* const> all = available_kernels();
  return all.size() > 1 ? all.first(all.size() - 1) : all;  // the last one is portable
}

KernelChoice fastest_kernels(Format format, Packing packing) {
  static std::mutex mutex;
  static std::map<std::pair<Format, Packing>, KernelChoice> known;
  const std::lock_guard lock(mutex);
  const std::pair key{format, packing};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  return known.emplace(key, measure(format, packing)).first->second;
}

}  // namespace ingot::cpu
