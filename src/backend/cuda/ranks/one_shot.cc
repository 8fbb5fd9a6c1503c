#include "backend/cuda/ranks/one_shot.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/log.h"

namespace ingot::cuda {
namespace {

constexpr size_t kTurnBytes = sizeof(uint32_t) * kOneShotBlocks;

// The longest slice of a block. Each number is sent to all other ranks, so more ranks get shorter slices.
int slice_of(int n_ranks) { return kOneShotPass * std::max(1, 4 / std::max(1, n_ranks - 1)); }

// How a rank reaches the memory of another.
struct Door {
  int64_t process = 0;
  int device = 0;
  bool can_open = true;
  void* data = nullptr;         // for ranks of the same process
  cudaIpcMemHandle_t handle{};  // for other processes of the same host
  char host[64] = {};
};

std::vector<Door> exchanged(Communicator& ranks, const Door& own) {
  std::vector<Door> all(static_cast<size_t>(ranks.size()));
  ranks.exchange(all.data(), &own, sizeof(own));
  return all;
}

bool same_host(const Door& a, const Door& b) { return std::string_view(a.host) == b.host; }

// Null if this GPU cannot read the memory.
void* open_door(const Door& door, const Door& own) {
  if (door.process == own.process) {
    int can = 0;
    if (door.device == own.device || cudaDeviceCanAccessPeer(&can, own.device, door.device) != cudaSuccess || can == 0)
      return nullptr;
    const cudaError_t status = cudaDeviceEnablePeerAccess(door.device, 0);
    cudaGetLastError();
    return status == cudaSuccess || status == cudaErrorPeerAccessAlreadyEnabled ? door.data : nullptr;
  }
  void* data = nullptr;
  if (cudaIpcOpenMemHandle(&data, door.handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess) return data;
  cudaGetLastError();
  return nullptr;
}

}  // namespace

std::unique_ptr<OneShot> OneShot::connect(Communicator& ranks, Device& device) {
  std::unique_ptr<OneShot> one(new OneShot);
  OneShotPeers& peers = one->peers_;
  peers.rank = ranks.rank(), peers.n_ranks = ranks.size();
  peers.lines_each = slice_of(ranks.size()) / 2;
  const size_t line_bytes = sizeof(OneShotLine) * kOneShotBlocks * kOneShotTurns * static_cast<size_t>(peers.n_ranks) *
                            static_cast<size_t>(peers.lines_each);
  one->memory_ = Memory(line_bytes + kTurnBytes);
  check(cudaMemset(one->memory_.data(), 0, one->memory_.size()), "cudaMemset");
  one->stop_ = Memory(sizeof(int), Place::kPinned);
  *static_cast<int*>(one->stop_.data()) = 0;
  Door own{.process = getpid(), .device = device.index(), .data = one->memory_.data()};
  gethostname(own.host, sizeof(own.host) - 1);
  if (cudaIpcGetMemHandle(&own.handle, own.data) != cudaSuccess) cudaGetLastError();  // only other processes need it
  const std::vector<Door> doors = exchanged(ranks, own);
  own.can_open = ranks.size() <= kMaxPeers;
  for (int r = 0; r < ranks.size() && own.can_open; ++r) {
    const Door& door = doors[static_cast<size_t>(r)];
    void* data = r == ranks.rank() ? own.data : same_host(door, own) ? open_door(door, own) : nullptr;
    own.can_open = data != nullptr;
    if (data != nullptr && door.process != own.process) one->opened_.push_back(data);
    if (r < kMaxPeers) peers.lines[r] = static_cast<OneShotLine*>(data);
  }
  peers.stop = static_cast<const int*>(one->stop_.data());
  peers.turns = reinterpret_cast<uint32_t*>(static_cast<char*>(own.data) + line_bytes);
  const std::vector<Door> opened = exchanged(ranks, own);
  const bool all = std::ranges::all_of(opened, [](const Door& door) { return door.can_open; });
  if (!all) log_info("a GPU cannot read the memory of another one: NCCL computes all sums");
  return all ? std::move(one) : nullptr;
}

void OneShot::stop() { *static_cast<volatile int*>(stop_.data()) = 1; }

OneShot::~OneShot() {
  for (void* memory : opened_) cudaIpcCloseMemHandle(memory);
}

bool OneShot::takes(const Tensor& y) const {
  return y.dtype == DType::kF32 && y.cols % 4 == 0 &&
         y.rows * y.cols <= int64_t{kOneShotBlocks} * slice_of(peers_.n_ranks);
}

void OneShot::add_reduced(const Tensor& x, const Tensor& y, Device& device) {
  CHECK(takes(y) && y.contiguous() && x.stride % 4 == 0);
  one_shot(peers_, x, y, device);
  check_launch("one_shot");
}

}  // namespace ingot::cuda
