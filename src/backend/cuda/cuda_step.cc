// A step of CudaBackend: the batch, the recorded graph.
//
// A batch of one new token a sequence takes the same launches every time, for kernels find lengths and blocks on the device. Its
// first run is plain, so that all scratch is taken; the second is recorded as a CUDA graph; later ones replay it. One launch for a
// whole step is what small models need: their kernels are shorter than a launch. --check-replay compares replays with plain launches.
#include <algorithm>
#include <cstring>
#include <exception>
#include <typeinfo>

#include "backend/cuda/cuda_backend.h"
#include "base/error.h"

namespace ingot {

using cuda::check;
using cuda::check_launch;

void CudaBackend::begin(const Batch& batch) {
  settle();
  take_up_kernels();
  n_tokens_ = batch.n_tokens(), n_seqs_ = batch.n_seqs(), n_logits_ = batch.n_logits();
  max_kv_len_ = max_q_len_ = 0;
  min_q_len_ = n_tokens_;
  for (int seq = 0; seq < n_seqs_; ++seq) {
    max_kv_len_ = std::max(max_kv_len_, batch.kv_len[seq]);
    max_q_len_ = std::max(max_q_len_, batch.q_len(seq));
    min_q_len_ = std::min(min_q_len_, batch.q_len(seq));
    for (int t = batch.q_start[seq]; t < batch.q_start[seq + 1]; ++t)
      CHECK_EQ(batch.positions[t], batch.kv_len[seq] - batch.q_start[seq + 1] + t);
  }
  Batch known = batch;
  known.tokens = host_drawn_tokens(batch);
  const bool has_drawn = std::ranges::any_of(known.tokens, [](int32_t token) { return token < 0; });
  CHECK(!has_drawn || best_.data() != nullptr);
  const auto* keys = has_drawn && greedy_ ? static_cast<const cuda::Key*>(best_.data()) : nullptr;
  const auto* drawn = has_drawn && !greedy_ ? static_cast<const cuda::RowDrawn*>(best_.data()) : nullptr;
  if (batch_.upload(known, keys, drawn, block_size_, device_)) forget_graphs();
}

// Contexts up to which a cluster is faster than a graph of kernels that take all of the GPU.
static constexpr int kMostClusterKv = 4096;

void CudaBackend::run(const std::function<void()>& body) {
  settle();
  struct Recording {
    CudaBackend& backend;
    ~Recording() { backend.records_layers_ = false, backend.layers_.take(), backend.pending_.reset(); }  // empty, unless the body threw
  } recording{*this};
  records_layers_ = !deterministic_ && n_tokens_ == 1 && n_seqs_ == 1 && act_ == DType::kF16 && kv_bucket() <= kMostClusterKv;
  if (clock_ && !capturing_) clock_->begin(n_tokens_, n_seqs_);
  if (capturing_ || n_tokens_ != n_seqs_) {
    body();
    return settle();
  }
  Graph& graph = graphs_[{body.target_type().hash_code(), n_tokens_, n_logits_, kv_bucket()}];
  if (!graph.seen) {
    body();  // may take scratch, which forgets graphs: `graph` is not touched after it
    settle();
    graphs_[{body.target_type().hash_code(), n_tokens_, n_logits_, kv_bucket()}].seen = true;
    return;
  }
  if (graph.exec == nullptr) capture(graph, body);
  if (checks_replays_) return check_replay(graph, body);
  check(cudaGraphLaunch(graph.exec, device_.stream()), "cudaGraphLaunch");
}

void CudaBackend::capture(Graph& graph, const std::function<void()>& body) {
  check(cudaStreamBeginCapture(device_.stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  capturing_ = true;
  std::exception_ptr fault;
  try {
    body();
    settle();
  } catch (...) {
    fault = std::current_exception();
    pending_.reset();
  }
  capturing_ = false;
  cudaGraph_t recorded = nullptr;
  const cudaError_t status = cudaStreamEndCapture(device_.stream(), &recorded);
  if (fault) {
    if (recorded != nullptr) cudaGraphDestroy(recorded);
    cudaGetLastError();
    std::rethrow_exception(fault);
  }
  check(status, "cudaStreamEndCapture");
  const cudaError_t made = cudaGraphInstantiate(&graph.exec, recorded, 0);
  cudaGraphDestroy(recorded);
  check(made, "cudaGraphInstantiate");
}

std::vector<std::vector<char>> CudaBackend::downloaded(const std::vector<Written>& places) {
  std::vector<std::vector<char>> all;
  for (const auto& [data, bytes] : places) {
    all.emplace_back(bytes);
    check(cudaMemcpyAsync(all.back().data(), data, bytes, cudaMemcpyDeviceToHost, device_.stream()), "cudaMemcpyAsync");
  }
  check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
  return all;
}

// First the replay, then plain launches from the same state: so what the replay fails to write shows too, in this step or by the cache later.
void CudaBackend::check_replay(const Graph& graph, const std::function<void()>& body) {
  std::vector<Written> places = activations_;
  places.insert(places.end(), states_.begin(), states_.end());
  const auto before = downloaded(places);
  check(cudaGraphLaunch(graph.exec, device_.stream()), "cudaGraphLaunch");
  const auto replayed = downloaded(places);
  for (size_t i = 0; i < places.size(); ++i)
    check(cudaMemcpyAsync(places[i].data, before[i].data(), places[i].bytes, cudaMemcpyHostToDevice, device_.stream()), "cudaMemcpyAsync");
  body();
  settle();
  const auto plain = downloaded(places);
  for (size_t i = 0; i < places.size(); ++i) {
    if (replayed[i] == plain[i]) continue;
    const auto at = std::ranges::mismatch(replayed[i], plain[i]).in1 - replayed[i].begin();
    throw Error("a replayed step of {} tokens differs from plain launches in buffer {} ({} bytes), at byte {}: an error of ingot, please report it",
                n_tokens_, i, places[i].bytes, at);
  }
}

void CudaBackend::forget_graphs() {
  for (auto& [key, graph] : graphs_)
    if (graph.exec != nullptr) cudaGraphExecDestroy(graph.exec);
  graphs_.clear();
}

void CudaBackend::synchronize() {
  settle();
  check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
}

}  // namespace ingot
