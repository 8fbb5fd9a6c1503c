#include "backend/cpu/memory.h"

#include <atomic>
#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/system.h"

namespace ingot::cpu {
namespace {

constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;

}  // namespace

Memory::Memory(size_t n_bytes) {
  if (n_bytes == 0) return;
  const bool huge = n_bytes >= 2 * kHugePage;
  const size_t mapped = n_bytes + (huge ? kHugePage : 0);
  void* mapping = take_pages(mapped);
  if (mapping == nullptr) {
    throw Error("out of memory: {} MiB more are needed; use a smaller model or context", (n_bytes >> 20) + 1);
  }
  mapping_ = mapping;
  mapped_ = mapped;
  data_ = static_cast<uint8_t*>(mapping);
  size_ = n_bytes;
  if (huge) {
    data_ += (kHugePage - reinterpret_cast<uintptr_t>(data_) % kHugePage) % kHugePage;
    ask_for_large_pages(data_, n_bytes / kHugePage * kHugePage);
  }
}

Memory::~Memory() {
  if (mapping_ != nullptr) free_pages(mapping_, mapped_);
}

void place_in_turn(const Memory& memory, const std::vector<MemoryNode>& nodes) {
  if (nodes.size() < 2 || memory.size() < 2 * kHugePage) return;
  std::vector<int> ids;
  for (const MemoryNode& node : nodes) ids.push_back(node.id);
  if (interleave_pages(memory.data(), memory.size() / kPage * kPage, ids)) return;
  const int code = errno;
  static std::atomic<bool> is_said{false};
  if (!is_said.exchange(true)) {
    log_warn("memory cannot be spread over the memory nodes: {}; in a container, allow mbind (CAP_SYS_NICE)",
             std::generic_category().message(code));
  }
}

void place_by_thread(const Memory& memory, int64_t n_runs, ThreadPool& pool) {
  const size_t n_nodes = pool.nodes().size(), run_bytes = n_runs > 0 ? memory.size() / static_cast<size_t>(n_runs) : 0;
  if (n_nodes < 2) return;
  if (run_bytes < n_nodes * 2 * kHugePage) return place_in_turn(memory, pool.nodes());
  const auto n_threads = static_cast<size_t>(pool.size());
  pool.on_each_thread([&](int thread) {
    for (uint8_t* run = memory.data(); run + run_bytes <= memory.data() + memory.size(); run += run_bytes) {
      uint8_t* part = run + run_bytes * static_cast<size_t>(thread) / n_threads;
      uint8_t* end = run + run_bytes * static_cast<size_t>(thread + 1) / n_threads;
      for (uint8_t* page = part; page < end; page += kPage) *static_cast<volatile uint8_t*>(page) = 0;
    }
  });
}

}  // namespace ingot::cpu
