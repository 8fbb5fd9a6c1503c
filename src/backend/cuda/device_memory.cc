#include "backend/cuda/device_memory.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace ingot::cuda {

size_t DeviceMemory::available() const {
  device_.make_current();
  size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
  return available;
}

size_t DeviceMemory::total() const {
  device_.make_current();
  size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
  return total;
}

void* DeviceMemory::take(size_t bytes) {
  device_.make_current();
  drop_records();
  buffers_.emplace_back(bytes);
  allocated_ += bytes;
  return buffers_.back().data();
}

void DeviceMemory::release(const void* taken) {
  const auto buffer = std::ranges::find(buffers_, taken, &Memory::data);
  CHECK(buffer != buffers_.end());
  allocated_ -= buffer->size();
  buffers_.erase(buffer);
}

Memory DeviceMemory::allocate(size_t bytes) {
  device_.make_current();
  drop_records();
  Memory memory(bytes);
  allocated_ += memory.size();
  return memory;
}

void DeviceMemory::free(Memory& memory) {
  allocated_ -= memory.size();
  memory = Memory();
}

// Never grows `memory` during a recording, because a step of the same size has run before and has allocated its
// scratch.
void* DeviceMemory::at_least(Memory& memory, size_t bytes, Place place) {
  if (memory.size() >= bytes) return memory.data();
  device_.make_current();
  drop_records();
  return grown(memory, bytes, place);
}

void* DeviceMemory::grown(Memory& memory, size_t bytes, Place place) {
  if (memory.size() >= bytes && memory.data() != nullptr) return memory.data();
  check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
  if (bytes < 1 << 20) bytes = std::bit_ceil(std::max<size_t>(bytes, 256));  // slow growth rarely reallocates
  const size_t before = memory.data() != nullptr ? memory.size() : 0;
  memory = Memory();
  if (place == Place::kDevice) allocated_ -= before;
  memory = Memory(bytes, place);
  if (place == Place::kDevice) allocated_ += bytes;
  return memory.data();
}

void DeviceMemory::reserve(const ScratchSizes& sizes) {
  for (size_t i = 0; i < kScratches; ++i) {
    const bool has_counters = i == static_cast<size_t>(Scratch::kGrid) || i == static_cast<size_t>(Scratch::kTurns);
    if (sizes[i] == 0 || (has_counters && sizes[i] <= scratch_[i].size())) continue;
    at_least(scratch_[i], sizes[i]);
    if (has_counters)
      check(cudaMemsetAsync(scratch_[i].data(), 0, scratch_[i].size(), device_.stream()), "cudaMemsetAsync");
  }
}

}  // namespace ingot::cuda
