#include "backend/planned_gpu.h"

#include <algorithm>
#include <utility>

#include "backend/gpu_sizes.h"
#include "base/error.h"

namespace ingot {
namespace {

// Scratch of CudaBackend: workspaces of the matmul library, a slice of a decoded weight, and the partial rows of
// attention on 132 multiprocessors.
constexpr size_t kWorkspaces = 64 << 20, kDecoded = 48 << 20, kPartialRows = 4 * 132 * 16;

class PlannedGpu final : public Backend {
 public:
  PlannedGpu(size_t memory_bytes, bool has_copies) : memory_bytes_(memory_bytes), has_copies_(has_copies) {}

  std::string name() const override { return "gpu"; }
  std::string description() const override { return "a GPU that is not there"; }
  DType act_dtype() const override { return DType::kF16; }
  int prompt_chunk() const override { return 2048; }

  Tensor alloc(DType, int64_t, int64_t) override { throw Error("a planned GPU has no memory"); }
  void upload(const Tensor&, const void*) override { throw Error("a planned GPU has no memory"); }
  void download(void*, const Tensor&) override { throw Error("a planned GPU has no memory"); }

  size_t allocated_bytes() const override { return 0; }
  size_t available_bytes() const override { return memory_bytes_; }
  size_t packed_bytes(const Weight& shape, unsigned use) const override {
    return gpu_packed_bytes(shape, false) + (has_copies_ ? gpu_halves_bytes(shape, use) : 0);
  }
  bool save_memory() override { return std::exchange(has_copies_, false); }
  bool reads_codes(Format, unsigned) const override { return false; }
  // CudaBackend's caches have an extra block and an extra slot for the sequences that pad a step.
  size_t kv_bytes(const KvShape& shape) const override {
    KvShape padded = shape;
    ++padded.n_blocks;
    return padded.bytes();
  }
  size_t state_bytes(const StateShape& shape) const override {
    StateShape padded = shape;
    ++padded.n_slots;
    return padded.bytes();
  }
  size_t scratch_bytes(const StepLimits& limits) const override {
    const size_t width = static_cast<size_t>(std::max(limits.max_width, 1)) * sizeof(uint16_t);
    const size_t rows = static_cast<size_t>(limits.max_tokens) * width;
    const size_t experts = static_cast<size_t>(limits.max_expert_floats) * sizeof(uint16_t);
    return kWorkspaces + rows + std::max(rows, experts) + std::max(kDecoded, 256 * width) +
           kPartialRows * static_cast<size_t>(limits.head_dim + 2) * sizeof(float);
  }
  size_t driver_bytes() const override { return size_t{384} << 20; }

 private:
  const size_t memory_bytes_;
  bool has_copies_;
};

}  // namespace

std::unique_ptr<Backend> planned_gpu(size_t memory_bytes, bool has_copies) {
  return std::make_unique<PlannedGpu>(memory_bytes, has_copies);
}

}  // namespace ingot
