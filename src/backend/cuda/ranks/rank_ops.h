// RankOps: the ops that the GPUs of several ranks run together, and waits for this GPU. Without ranks, a wait has no
// time limit.
#pragma once
#include <memory>

#include "backend/communicator.h"
#include "backend/cuda/core.h"
#include "backend/cuda/ranks/nccl.h"
#include "backend/cuda/ranks/peer_sums.h"
#include "backend/ops.h"

namespace ingot::cuda {

class RankOps {
 public:
  explicit RankOps(Core& core) : core_(core) {}
  ~RankOps();
  RankOps(const RankOps&) = delete;
  RankOps& operator=(const RankOps&) = delete;

  void connect(std::shared_ptr<Communicator> ranks);  // null: no ranks
  bool has_peers() const { return nccl_ != nullptr; }
  bool draws() const { return !nccl_ || ranks_->rank() == 0; }  // only rank 0 draws tokens

  void all_reduce(const Tensor& x) { nccl_->all_reduce(x, core_.device.stream()); }
  void all_gather(const Tensor& y, const Tensor& x);
  // Returns false, and does nothing, if no kernel adds y.
  bool add_reduced(const Tensor& x, const Tensor& y, const Tensor& norm_out, const NormArgs& args);
  bool norms_sums(const Tensor& x, const NormArgs& args) const;
  void share_drawn_tokens(const Batch& batch);

  void await(cudaEvent_t event);
  void await_stream();  // all work in the stream
  void meet();

 private:
  Core& core_;
  std::shared_ptr<Communicator> ranks_;
  std::unique_ptr<Nccl> nccl_;  // null: no other ranks
  std::unique_ptr<PeerSums> peer_sums_;
  cudaEvent_t finished_event_ = nullptr;  // of await_stream
};

}  // namespace ingot::cuda
