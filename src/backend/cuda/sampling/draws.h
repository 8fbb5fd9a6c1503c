// Draws: the tokens that a CudaBackend draws. If all rows only need their largest logit, one launch draws all rows.
// Otherwise draw.cu draws them. Rows with options that draw.cu does not support (typical sampling, the stages of
// sampler_stages.h) are drawn by the host's sampler, from a copy of only that row. For other rows, only some bytes each
// are copied back.
//
// Steps overlap. take() waits only for the last sample, not for a step launched later. The later step may use tokens
// that the sample has not drawn yet. If the device draws these tokens, the step reads them on the device. If the host
// draws them, host_drawn_tokens() waits for them.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/core.h"
#include "backend/cuda/ranks/rank_ops.h"
#include "backend/sampling.h"
#include "base/threads.h"

namespace ingot::cuda {

class Draws {
 public:
  Draws(Core& core, RankOps& ranks) : core_(core), ranks_(ranks) {}
  ~Draws();
  Draws(const Draws&) = delete;
  Draws& operator=(const Draws&) = delete;

  void sample(const Tensor& logits, std::span<const SampleRow> rows);
  std::vector<Sampled> take();  // the draws of the last sample
  bool is_drawn() const;        // whether take() would return at once

  // Returns the batch's tokens with the host's draws filled in. Tokens that the device draws are filled in on the
  // device, from on_device().
  std::span<const int32_t> host_drawn_tokens(const Batch& batch);
  BatchUpload::Draws on_device() const;

 private:
  void sample_greedy(const Tensor& logits, bool has_logprobs);
  void sample_rows(const Tensor& logits);
  void copy_draws(void* to, const void* from, size_t bytes);
  void collect();
  void sample_on_host(const float* logits, std::vector<Sampled>& sampled);

  Core& core_;
  Device& device_ = core_.device;
  RankOps& ranks_;
  std::vector<SampleRow> rows_;
  int64_t n_vocab_ = 0;
  bool greedy_ = false;            // the sampled rows are argmax keys, not RowDrawn
  std::vector<size_t> host_rows_;  // indices in rows_ of the rows that the host's sampler draws
  std::vector<int32_t> counts_;    // [n_vocab]: zero between draws
  Memory best_, sampled_;          // best_: keys or RowDrawn; sampled_: pinned copy, then the logits of host_rows_
  Memory argmax_;                  // RowArgmax, zero between draws
  Memory draws_, draws_pinned_;
  cudaEvent_t drawn_event_ = nullptr;   // the draws have reached the host
  cudaEvent_t copied_event_ = nullptr;  // the inputs of the draws have reached the device
  std::vector<Sampled> drawn_;          // the draws of the last sample(), once collected
  std::vector<int32_t> tokens_;         // the batch's tokens, if the host drew some of them
  std::unique_ptr<ThreadPool> pool_;    // for the host sampler
};

}  // namespace ingot::cuda
