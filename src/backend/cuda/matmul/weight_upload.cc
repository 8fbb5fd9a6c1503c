#include "backend/cuda/matmul/weight_upload.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ingot::cuda {
namespace {

constexpr int kMaxThreads = 16;                  // more threads do not exceed the speed of the bus
constexpr size_t kShare = size_t{1} << 20;       // bytes of a thread at a time
constexpr size_t kSmallest = size_t{256} << 10;  // least bytes of pinned memory

}  // namespace

WeightUpload::WeightUpload() : pool_(std::min(available_cpus(), kMaxThreads)) {}

WeightUpload::~WeightUpload() {
  for (Piece& piece : pieces_) {
    if (piece.copied == nullptr) continue;
    cudaEventSynchronize(piece.copied);
    cudaEventDestroy(piece.copied);
  }
}

void WeightUpload::copy(void* to, const void* from, size_t bytes, Device& device) {
  for (size_t done = 0; done < bytes; done += kPiece) {
    Piece& piece = pieces_[next_];
    next_ = (next_ + 1) % pieces_.size();
    if (piece.copied == nullptr)
      check(cudaEventCreateWithFlags(&piece.copied, cudaEventDisableTiming), "cudaEventCreate");
    check(cudaEventSynchronize(piece.copied), "cudaEventSynchronize");
    const size_t n = std::min(kPiece, bytes - done);
    if (piece.memory.size() < n) piece.memory = Memory(std::bit_ceil(std::max(n, kSmallest)), Place::kPinned);
    auto* pinned = static_cast<char*>(piece.memory.data());
    const char* source = static_cast<const char*>(from) + done;
    pool_.parallel_for(static_cast<int64_t>((n + kShare - 1) / kShare), [&](int64_t task, int) {
      const size_t begin = static_cast<size_t>(task) * kShare;
      std::memcpy(pinned + begin, source + begin, std::min(kShare, n - begin));
    });
    check(cudaMemcpyAsync(static_cast<char*>(to) + done, pinned, n, cudaMemcpyHostToDevice, device.stream()),
          "cudaMemcpyAsync");
    check(cudaEventRecord(piece.copied, device.stream()), "cudaEventRecord");
  }
}

}  // namespace ingot::cuda
