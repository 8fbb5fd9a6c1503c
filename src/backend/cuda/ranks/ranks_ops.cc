// Ops that the GPUs of several ranks run together.
#include <chrono>

#include "backend/cuda/cuda_backend.h"
#include "base/device_lost.h"

namespace ingot {

using cuda::check;

void CudaBackend::connect(std::shared_ptr<Communicator> ranks) {
  device_.make_current();
  if (!ranks) {
    if (peer_sums_) peer_sums_->stop();  // sums that still wait for another rank are useless now
    if (nccl_) nccl_->abort();
    cudaStreamSynchronize(device_.stream());  // ignores the status: a lost device has nothing to wait for
    drop_graphs();
    peer_sums_.reset(), nccl_.reset();
  } else if (ranks->size() > 1) {
    nccl_ = std::make_unique<cuda::Nccl>(*ranks);
    // With f32 activations, sums are in f32 too.
    if (act_ == DType::kF16) peer_sums_ = cuda::PeerSums::connect(*ranks, device_);
  }
  Backend::connect(std::move(ranks));
}

void CudaBackend::zero(Tensor x) {
  CHECK(x.contiguous());
  const size_t bytes = static_cast<size_t>(x.rows * x.cols) * dtype_bytes(x.dtype);
  check(cudaMemsetAsync(x.data, 0, bytes, device_.stream()), "cudaMemsetAsync");
}

void CudaBackend::all_reduce(Tensor x) { nccl_->all_reduce(x, device_.stream()); }

void CudaBackend::all_gather(Tensor y, Tensor x) {
  if (peer_sums_ && cuda::PeerSums::can_gather(x.rows * x.cols)) return peer_sums_->gather(y, x, device_);
  nccl_->all_gather(y, x, device_.stream());
}

void CudaBackend::add_reduced(Tensor x, Tensor y, Tensor norm_out, const NormArgs& args) {
  if (!peer_sums_ || !peer_sums_->takes(y)) return Backend::add_reduced(x, y);
  peer_sums_->add_reduced(x, y, norm_out, norms_sums(x, args) ? args : NormArgs{}, device_);
}

// With --deterministic, the same kernel computes the norm for any number of rows.
bool CudaBackend::norms_sums(const Tensor& x, const NormArgs& args) const {
  return peer_sums_ && !deterministic_ && peer_sums_->takes(x) && peer_sums_->norms(x, args);
}

// Waits for an event on this GPU. With ranks there is a time limit, because the event never happens if another rank of
// the stage fails, and because other stages wait for a GPU that hangs.
void CudaBackend::await(cudaEvent_t event) {
  if (!ranks()) return check(cudaEventSynchronize(event), "cudaEventSynchronize");
  const auto begun = std::chrono::steady_clock::now();
  try {
    for (cudaError_t status; (status = cudaEventQuery(event)) != cudaSuccess;) {
      if (status != cudaErrorNotReady) check(status, "cudaEventQuery");
      ranks()->check();
      if (std::chrono::steady_clock::now() - begun < ranks()->limit()) continue;
      if (nccl_) nccl_->check_peers();
      throw DeviceLost("the GPUs have not finished a step for {} s: a rank hangs, so the model ends",
                       std::chrono::duration<double>(ranks()->limit()).count());
    }
  } catch (const DeviceLost&) {
    if (peer_sums_) peer_sums_->stop();
    if (nccl_) nccl_->abort();
    throw;
  }
}

// Waits for all work in the stream, with a time limit if there are ranks.
void CudaBackend::await_stream() {
  if (!ranks()) return check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
  if (finished_event_ == nullptr)
    check(cudaEventCreateWithFlags(&finished_event_, cudaEventDisableTiming), "cudaEventCreate");
  check(cudaEventRecord(finished_event_, device_.stream()), "cudaEventRecord");
  await(finished_event_);
}

// Called before the driver allocates memory or records steps, because kernels of other ranks that wait for this rank
// could hang.
void CudaBackend::meet_ranks() {
  if (!nccl_) return;
  check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
  std::vector<char> all(static_cast<size_t>(ranks()->size()));
  ranks()->exchange(all.data(), "", 1);
}

// Only rank 0 draws tokens. If the batch has tokens that the host has not read yet, rank 0 sends them to the other
// GPUs.
void CudaBackend::share_drawn_tokens(const Batch& batch) {
  if (std::ranges::none_of(batch.tokens, [](int32_t token) { return token < 0; })) return;
  auto* tokens = const_cast<int32_t*>(device_batch_.view().tokens);
  if (peer_sums_ && cuda::PeerSums::can_gather(std::ssize(batch.tokens)))
    return peer_sums_->share(tokens, std::ssize(batch.tokens), device_);
  nccl_->broadcast(tokens, batch.tokens.size_bytes(), device_.stream());
}

}  // namespace ingot
