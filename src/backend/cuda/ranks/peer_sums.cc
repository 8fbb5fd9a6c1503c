#include "backend/cuda/ranks/peer_sums.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace ingot::cuda {
namespace {

// The parts of a rank's memory, in order.
struct Parts {
  explicit Parts(int n_ranks) {
    const auto n = static_cast<size_t>(n_ranks);
    codes = sizeof(PeerLine) * kLineBlocks * kPeerTurns * n * kLineThreads * 2;
    arrived = codes + sizeof(uint4) * kSliceBlocks * kPeerTurns * 2 * kMaxSlice / kPeerGroup;
    gathered = arrived + sizeof(uint32_t) * kSliceBlocks * kPeerTurns * 2 * n;
    line_turns = gathered + sizeof(PeerLine) * kGatherBlocks * kPeerTurns * n * kGatherThreads * kGatherLines;
    turns = line_turns + sizeof(uint32_t) * kLineBlocks;
    gather_turns = turns + sizeof(uint32_t) * kSliceBlocks;
    end = gather_turns + sizeof(uint32_t) * kGatherBlocks;
  }
  PeerMailbox mailbox(char* memory) const {
    return {.lines = reinterpret_cast<PeerLine*>(memory),
            .codes = reinterpret_cast<uint4*>(memory + codes),
            .arrived = reinterpret_cast<uint32_t*>(memory + arrived),
            .gathered = reinterpret_cast<PeerLine*>(memory + gathered)};
  }

  size_t codes, arrived, gathered, line_turns, turns, gather_turns, end;  // bytes from the beginning; lines begin at 0
};

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

std::unique_ptr<PeerSums> PeerSums::connect(Communicator& ranks, Device& device) {
  std::unique_ptr<PeerSums> sums(new PeerSums);
  Peers& peers = sums->peers_;
  peers.rank = ranks.rank(), peers.n_ranks = ranks.size();
  const Parts parts(ranks.size());
  sums->memory_ = Memory(parts.end);
  check(cudaMemset(sums->memory_.data(), 0, sums->memory_.size()), "cudaMemset");
  sums->stop_ = Memory(sizeof(int), Place::kPinned);
  *static_cast<int*>(sums->stop_.data()) = 0;
  Door own{.process = getpid(), .device = device.index(), .data = sums->memory_.data()};
  gethostname(own.host, sizeof(own.host) - 1);
  if (cudaIpcGetMemHandle(&own.handle, own.data) != cudaSuccess) cudaGetLastError();  // only other processes need it
  const std::vector<Door> doors = exchanged(ranks, own);
  own.can_open = ranks.size() <= kMaxPeers;
  for (int r = 0; r < ranks.size() && own.can_open; ++r) {
    const Door& door = doors[static_cast<size_t>(r)];
    void* data = r == ranks.rank() ? own.data : same_host(door, own) ? open_door(door, own) : nullptr;
    own.can_open = data != nullptr;
    if (data != nullptr && door.process != own.process) sums->opened_.push_back(data);
    if (r < kMaxPeers) peers.of[r] = parts.mailbox(static_cast<char*>(data));
  }
  peers.stop = static_cast<const int*>(sums->stop_.data());
  for (const auto& [turns, place] : {std::pair{&peers.line_turns, parts.line_turns},
                                     {&peers.turns, parts.turns},
                                     {&peers.gather_turns, parts.gather_turns}})
    *turns = reinterpret_cast<uint32_t*>(static_cast<char*>(own.data) + place);
  const std::vector<Door> opened = exchanged(ranks, own);
  const bool all = std::ranges::all_of(opened, [](const Door& door) { return door.can_open; });
  if (!all) log_info("a GPU cannot read the memory of another one: NCCL computes all sums");
  return all ? std::move(sums) : nullptr;
}

void PeerSums::stop() { *static_cast<volatile int*>(stop_.data()) = 1; }

PeerSums::~PeerSums() {
  for (void* memory : opened_) cudaIpcCloseMemHandle(memory);
}

bool PeerSums::takes(const Tensor& y) const {
  return y.dtype == DType::kF32 && y.cols % kPeerGroup == 0 && y.rows * y.cols <= std::numeric_limits<int>::max();
}

void PeerSums::add_reduced(const Tensor& x, const Tensor& y, const Tensor& normed, const NormArgs& norm,
                           Device& device) {
  CHECK(takes(y) && y.contiguous() && x.stride % 4 == 0);
  if (y.rows == 0) return;
  add_peer_sums(peers_, x, y, normed, norm, device);
  check_launch("add_peer_sums");
}

void PeerSums::gather(const Tensor& all, const Tensor& own, Device& device) {
  CHECK(own.dtype == DType::kF32 && all.dtype == DType::kF32 && own.contiguous() && all.contiguous());
  CHECK(can_gather(own.rows * own.cols) && all.rows == peers_.n_ranks * own.rows && all.cols == own.cols);
  if (own.rows == 0) return;
  gather_peer_words(peers_, static_cast<uint32_t*>(all.data), static_cast<const uint32_t*>(own.data),
                    static_cast<int>(own.rows * own.cols), device);
  check_launch("gather_peer_words");
}

void PeerSums::share(int32_t* words, int64_t n, Device& device) {
  CHECK(can_gather(n));
  share_peer_words(peers_, reinterpret_cast<uint32_t*>(words), static_cast<int>(n), device);
  check_launch("share_peer_words");
}

}  // namespace ingot::cuda
