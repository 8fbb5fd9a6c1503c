// Memory for weights, caches and scratch: zeroed and aligned. The system provides a page at its first touch, so several
// threads can touch pages in parallel. Large memory uses huge pages; otherwise a walk through weights at full bandwidth
// loses time in page tables.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

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

}  // namespace ingot::cpu
