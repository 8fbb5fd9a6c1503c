// Memory for weights, caches and scratch: zeroed and aligned. The system provides a page at its first touch, so several
// threads can touch pages in parallel. Large memory uses huge pages, because small pages slow down reading weights at
// full bandwidth.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/threads.h"

namespace ingot::cpu {

class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t n_bytes);  // throws Error if the system cannot provide n_bytes
  ~Memory();
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_, other.mapped_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  uint8_t* data() const { return data_; }
  float* f32() const { return reinterpret_cast<float*>(data_); }
  size_t size() const { return size_; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Both functions place untouched pages, and do nothing on a machine with one memory node. For data that all threads
// read: places the pages on the nodes in turn.
void place_in_turn(const Memory& memory, const std::vector<MemoryNode>& nodes);
// For n_runs equal runs, each read in equal parts by the pool's threads: places each part on the node of its thread.
// Runs with less than two large pages for a node are placed on the nodes in turn.
void place_by_thread(const Memory& memory, int64_t n_runs, ThreadPool& pool);

}  // namespace ingot::cpu
