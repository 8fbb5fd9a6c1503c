#include "backend/cpu/machine_peaks.h"

#include <cstring>
#include <thread>

#include "backend/cpu/isa.h"
#include "backend/cpu/memory.h"
#include "base/thread_start.h"

namespace ingot::cpu {
namespace {

// One memory node for each CPU, so that a pool binds each of its threads to one CPU.
std::vector<MemoryNode> one_node_each(std::span<const int> cpus) {
  std::vector<MemoryNode> nodes;
  for (const int cpu : cpus) nodes.push_back({cpu, {cpu}, 1});
  return nodes;
}

Rate measure_read(ThreadPool& pool, size_t n_bytes) {
  constexpr int64_t kPiece = 4 << 20;
  const int64_t n_pieces = std::max<int64_t>(pool.size(), static_cast<int64_t>(n_bytes) / kPiece);
  const Memory memory(static_cast<size_t>(kPiece * n_pieces));
  pool.parallel_for(n_pieces, [&](int64_t i, int) { std::memset(memory.data() + i * kPiece, 1, kPiece); });
  const auto read = available_kernels().front()->peak_read;
  return rate_of(pool, n_pieces, std::chrono::milliseconds(400),
                 [&](int64_t i) { return read(memory.data() + i * kPiece, kPiece); });
}

MachinePeaks measure_bound(std::span<const int> cpus, size_t bytes_to_read) {
  constexpr int64_t kIterations = 20000;  // about 50 microseconds
  ThreadPool pool(static_cast<int>(cpus.size()), start_std_thread, one_node_each(cpus));
  MachinePeaks peaks;
  peaks.read = measure_read(pool, bytes_to_read);
  for (const PeakProduct& product : peak_products())
    peaks.products.push_back(rate_of(pool, int64_t{16} * pool.size(), std::chrono::milliseconds(300),
                                     [&](int64_t) { return product.run(kIterations); }));
  return peaks;
}

}  // namespace

std::vector<std::string> product_names() {
  std::vector<std::string> names;
  for (const PeakProduct& product : peak_products()) names.emplace_back(product.name);
  return names;
}

MachinePeaks measure_machine(std::span<const int> cpus, size_t bytes_to_read) {
  MachinePeaks peaks;
  // A thread of its own, because the pool binds its caller.
  std::thread thread =
      start_thread("the measurement", [&] { return std::thread([&] { peaks = measure_bound(cpus, bytes_to_read); }); });
  thread.join();
  return peaks;
}

}  // namespace ingot::cpu
