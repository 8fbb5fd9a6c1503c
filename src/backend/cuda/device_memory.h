// DeviceMemory: the device memory of one backend: buffers, caches, and scratch that ops share. All of it is counted.
#pragma once
#include <array>
#include <deque>
#include <functional>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/memory.h"
#include "backend/tensor.h"

namespace ingot::cuda {

// Scratch: memory that an op may use while it runs.
enum class Scratch {
  kUp,        // the second product of gate_up, or a product of joined weights
  kActCopy,   // activations converted to the type of activations
  kArranged,  // activations in matvec's layout, if shared memory is too small for them
  kDecoded,   // a slice of a quantized weight for the dense product, or activations as 8-bit floats
  kPartials,  // partial results of split attention
  kOrder,     // rows by expert (experts.h)
  kGrid,      // for grid/layers.h; its counters are zero between steps
  kTurns,     // ClusterTurns, for cluster/layers.h
};
inline constexpr size_t kScratches = 8;
using ScratchSizes = std::array<size_t, kScratches>;  // bytes

// A buffer whose contents a step changes.
struct Written {
  void* data = nullptr;
  size_t bytes = 0;
};

class DeviceMemory {
 public:
  explicit DeviceMemory(Device& device) : device_(device) {}

  // Recorded steps hold addresses. drop_records() is called before an address in them changes; `drop` drops them.
  void on_drop(std::function<void()> drop) { drop_ = std::move(drop); }
  void drop_records() {
    if (drop_) drop_();
  }

  void* take(size_t bytes);  // allocates memory that lives as long as this object, or until release()
  void release(const void* taken);
  Memory allocate(size_t bytes);  // for a cache; it stays counted
  void free(Memory& memory);
  void recount(size_t before, size_t now) { allocated_ += now - before; }  // of memory that others allocate

  // Both grow `memory` to at least `bytes`, after the work that uses it has ended. Recorded steps hold addresses of
  // scratch, so at_least() drops recorded steps when `memory` moves. Recorded steps hold no address of memory from
  // grown().
  void* at_least(Memory& memory, size_t bytes, Place place = Place::kDevice);
  void* grown(Memory& memory, size_t bytes, Place place = Place::kDevice);

  void reserve(const ScratchSizes& sizes);
  void* scratch(Scratch which, size_t bytes) { return at_least(scratch_[static_cast<size_t>(which)], bytes); }
  const Memory& scratch(Scratch which) const { return scratch_[static_cast<size_t>(which)]; }

  size_t allocated() const { return allocated_; }
  size_t available() const;  // bytes of the device that can be allocated now
  size_t total() const;      // bytes of the device

 private:
  Device& device_;
  std::function<void()> drop_;
  size_t allocated_ = 0;
  std::deque<Memory> buffers_;
  std::array<Memory, kScratches> scratch_;
};

}  // namespace ingot::cuda
