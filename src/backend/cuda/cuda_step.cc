// A step of CudaBackend: the batch, the recorded graph, the draw.
//
// A batch of one new token a sequence takes the same launches every time, for kernels find lengths and blocks on the device. Its
// first run is plain, so that all scratch is taken; the second is recorded as a CUDA graph; later ones replay it. One launch for a
// whole step is what small models need: their kernels are shorter than a launch.
#include <algorithm>
#include <cstring>
#include <exception>
#include <typeinfo>

#include "backend/cuda/cuda_backend.h"
#include "backend/sampler.h"
#include "base/error.h"

namespace ingot {

using cuda::check;
using cuda::check_launch;

namespace {

// Whether a row's draw is the largest of its raw logits and nothing else.
bool is_plain_greedy(const SampleRow& row) {
  const SamplingParams& p = *row.params;
  const bool penalties =
      p.penalty_window != 0 && (p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0);
  return p.temperature == 0 && !penalties && p.logit_bias.empty() && row.mask == nullptr && p.n_logprobs < 0;
}

int32_t token_of(unsigned long long key) {
  return key == 0 ? 0 : static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(key));
}

}  // namespace

void CudaBackend::begin(const Batch& batch) {
  settle();
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
  if (batch_.upload(batch, block_size_, stream_)) forget_graphs();
}

void CudaBackend::run(const std::function<void()>& body) {
  settle();
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
  check(cudaGraphLaunch(graph.exec, stream_), "cudaGraphLaunch");
}

void CudaBackend::capture(Graph& graph, const std::function<void()>& body) {
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
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
  const cudaError_t status = cudaStreamEndCapture(stream_, &recorded);
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

void CudaBackend::forget_graphs() {
  for (auto& [key, graph] : graphs_)
    if (graph.exec != nullptr) cudaGraphExecDestroy(graph.exec);
  graphs_.clear();
}

void CudaBackend::synchronize() {
  settle();
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

// Plain greedy rows are drawn on the device; a step with any other is drawn by the host's sampler, from the logits.
void CudaBackend::sample(const Tensor& logits, std::span<const SampleRow> rows) {
  settle();
  rows_.assign(rows.begin(), rows.end());
  sample_vocab_ = logits.cols;
  if (rows.empty()) return;
  CHECK_LE(static_cast<int64_t>(rows.size()), logits.rows);
  greedy_ = std::all_of(rows.begin(), rows.end(), is_plain_greedy);
  const Tensor used = logits.slice_rows(0, static_cast<int64_t>(rows.size()));
  const size_t bytes = greedy_ ? rows.size() * 8 : static_cast<size_t>(used.rows * used.cols) * sizeof(float);
  void* pinned = scratch_at_least(sampled_, bytes, cuda::Place::kPinned);
  if (!greedy_) {
    CHECK(used.contiguous());
    return check(cudaMemcpyAsync(pinned, used.data, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
  }
  auto* best = static_cast<unsigned long long*>(scratch_at_least(best_, bytes));
  check(cudaMemsetAsync(best, 0, bytes, stream_), "cudaMemsetAsync");
  cuda::argmax_rows(best, used, stream_);
  check_launch("argmax_rows");
  check(cudaMemcpyAsync(pinned, best, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
}

std::vector<Sampled> CudaBackend::wait() {
  synchronize();
  std::vector<Sampled> drawn(rows_.size());
  if (greedy_) {
    for (size_t i = 0; i < drawn.size(); ++i)
      drawn[i].token = token_of(static_cast<const unsigned long long*>(sampled_.data())[i]);
    rows_.clear();
    return drawn;
  }
  if (!pool_) pool_ = std::make_unique<ThreadPool>();
  const auto n_rows = static_cast<int64_t>(rows_.size()), n_tasks = std::min<int64_t>(n_rows, pool_->size());
  std::vector<std::exception_ptr> faults(rows_.size());
  pool_->parallel_for(n_tasks, [&](int64_t task, int) {
    SamplerScratch scratch(static_cast<int>(sample_vocab_));
    for (int64_t i = task; i < n_rows; i += n_tasks) {
      try {
        const float* row = static_cast<const float*>(sampled_.data()) + i * sample_vocab_;
        drawn[i] = sample_row({row, static_cast<size_t>(sample_vocab_)}, rows_[i], scratch);
      } catch (...) {
        faults[i] = std::current_exception();
      }
    }
  });
  rows_.clear();
  for (const std::exception_ptr& fault : faults)
    if (fault) std::rethrow_exception(fault);
  return drawn;
}

}  // namespace ingot
