#include "backend/cuda/ranks/rank_ops.h"

#include <algorithm>
#include <chrono>

#include "base/device_lost.h"

namespace ingot::cuda {

RankOps::~RankOps() {
  if (finished_event_ != nullptr) cudaEventDestroy(finished_event_);
}

void RankOps::connect(std::shared_ptr<Communicator> ranks) {
  core_.device.make_current();
  if (!ranks) {
    if (peer_sums_) peer_sums_->stop();  // sums that still wait for another rank are useless now
    if (nccl_) nccl_->abort();
    cudaStreamSynchronize(core_.device.stream());  // ignores the status: a lost device has nothing to wait for
    core_.memory.drop_records();
    peer_sums_.reset(), nccl_.reset();
  } else if (ranks->size() > 1) {
    nccl_ = std::make_unique<Nccl>(*ranks);
    // With f32 activations, sums are in f32 too.
    if (core_.act == DType::kF16) peer_sums_ = PeerSums::connect(*ranks, core_.device);
  }
  ranks_ = std::move(ranks);
}

void RankOps::all_gather(const Tensor& y, const Tensor& x) {
  if (peer_sums_ && PeerSums::can_gather(x.rows * x.cols)) return peer_sums_->gather(y, x, core_.device);
  nccl_->all_gather(y, x, core_.device.stream());
}

bool RankOps::add_reduced(const Tensor& x, const Tensor& y, const Tensor& norm_out, const NormArgs& args) {
  if (!peer_sums_ || !peer_sums_->takes(y)) return false;
  peer_sums_->add_reduced(x, y, norm_out, norms_sums(x, args) ? args : NormArgs{}, core_.device);
  return true;
}

// With --deterministic, the same kernel computes the norm for any number of rows.
bool RankOps::norms_sums(const Tensor& x, const NormArgs& args) const {
  return peer_sums_ && !core_.deterministic && peer_sums_->takes(x) && peer_sums_->norms(x, args);
}

// With ranks there is a time limit, because the event never happens if another rank of the stage fails, and because
// other stages wait for a GPU that hangs.
void RankOps::await(cudaEvent_t event) {
  if (!ranks_) return check(cudaEventSynchronize(event), "cudaEventSynchronize");
  const auto begun = std::chrono::steady_clock::now();
  try {
    for (cudaError_t status; (status = cudaEventQuery(event)) != cudaSuccess;) {
      if (status != cudaErrorNotReady) check(status, "cudaEventQuery");
      ranks_->check();
      if (std::chrono::steady_clock::now() - begun < ranks_->limit()) continue;
      if (nccl_) nccl_->check_peers();
      throw DeviceLost("the GPUs have not finished a step for {} s: a rank hangs, so the model ends",
                       std::chrono::duration<double>(ranks_->limit()).count());
    }
  } catch (const DeviceLost&) {
    if (peer_sums_) peer_sums_->stop();
    if (nccl_) nccl_->abort();
    throw;
  }
}

void RankOps::await_stream() {
  if (!ranks_) return check(cudaStreamSynchronize(core_.device.stream()), "cudaStreamSynchronize");
  if (finished_event_ == nullptr)
    check(cudaEventCreateWithFlags(&finished_event_, cudaEventDisableTiming), "cudaEventCreate");
  check(cudaEventRecord(finished_event_, core_.device.stream()), "cudaEventRecord");
  await(finished_event_);
}

// Called before the driver allocates memory or records steps, because kernels of other ranks that wait for this rank
// could hang.
void RankOps::meet() {
  if (!nccl_) return;
  check(cudaStreamSynchronize(core_.device.stream()), "cudaStreamSynchronize");
  std::vector<char> all(static_cast<size_t>(ranks_->size()));
  ranks_->exchange(all.data(), "", 1);
}

// If the batch has tokens that the host has not read yet, rank 0 sends them to the other GPUs.
void RankOps::share_drawn_tokens(const Batch& batch) {
  if (!nccl_ || std::ranges::none_of(batch.tokens, [](int32_t token) { return token < 0; })) return;
  auto* tokens = const_cast<int32_t*>(core_.step.view().tokens);
  if (peer_sums_ && PeerSums::can_gather(std::ssize(batch.tokens)))
    return peer_sums_->share(tokens, std::ssize(batch.tokens), core_.device);
  nccl_->broadcast(tokens, batch.tokens.size_bytes(), core_.device.stream());
}

}  // namespace ingot::cuda
