#include "backend/cuda/sampling/draws.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "backend/philox.h"
#include "backend/sampler.h"
#include "backend/sampler_stages.h"

namespace ingot::cuda {
namespace {

bool has_penalties(const SamplingParams& p) {
  return p.penalty_window != 0 && (p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0);
}

// Whether argmax.cu may compute the log-probability, which then differs a little from that of draw.cu.
bool is_estimate(const SampleRow& row) { return row.estimates_logprob && row.params->n_logprobs == 0; }

// Whether the drawn token is the one with the largest raw logit, without exact log-probabilities.
bool is_plain_greedy(const SampleRow& row) {
  if (row.unwanted) return true;
  const SamplingParams& p = *row.params;
  return p.temperature == 0 && !needs_stages(p) && !has_penalties(p) && p.logit_bias.empty() && row.mask == nullptr &&
         (p.n_logprobs < 0 || is_estimate(row));
}

bool is_for_host(const SampleRow& row) {
  CHECK_LE(row.params->n_logprobs, kMaxTop);
  const SamplingParams& p = *row.params;
  return !row.unwanted && (needs_stages(p) || (p.typical_p < 1 && p.temperature > 0));
}

// kNoToken if the largest logit is NaN, whose key is 0, or -infinity.
int32_t token_of(unsigned long long key) {
  return key >> 32 <= 0x007FFFFF ? kNoToken : static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(key));
}

// Adds the tokens whose logits a row changes, each once. `counts` [n_vocab] is zero before and after the call.
void add_edits(const SampleRow& row, std::vector<int32_t>& counts, std::vector<LogitEdit>& edits) {
  const SamplingParams& p = *row.params;
  const size_t first = edits.size();
  if (has_penalties(p)) {
    std::span<const int32_t> seen = row.history;
    if (p.penalty_window >= 0 && seen.size() > static_cast<size_t>(p.penalty_window))
      seen = seen.last(p.penalty_window);
    for (const int32_t token : seen) {
      CHECK(token >= 0 && static_cast<size_t>(token) < counts.size());
      if (counts[token]++ == 0) edits.push_back({.token = token});
    }
    for (size_t i = first; i < edits.size(); ++i) edits[i].count = std::exchange(counts[edits[i].token], 0);
  }
  if (p.logit_bias.empty()) return;
  for (size_t i = first; i < edits.size(); ++i)
    counts[edits[i].token] = static_cast<int32_t>(i - first) + 1;  // index of the edit
  for (const auto& [token, bias] : p.logit_bias) {
    CHECK(token >= 0 && static_cast<size_t>(token) < counts.size());
    if (counts[token] == 0) {
      edits.push_back({.token = token});
      counts[token] = static_cast<int32_t>(edits.size() - first);
    }
    edits[first + counts[token] - 1].bias += bias;
  }
  for (size_t i = first; i < edits.size(); ++i) counts[edits[i].token] = 0;
}

RowDraw draw_of(const SampleRow& row, int index) {
  const SamplingParams& p = *row.params;
  RowDraw d{.u = uniform_draw(p.seed, static_cast<uint64_t>(row.position)),
            .inverse_temperature = p.temperature == 0 ? 0.0f : 1.0f / p.temperature,
            .top_p = p.top_p,
            .log_min_p = p.min_p > 0 ? std::log(p.min_p) : -INFINITY,
            .top_k = p.top_k,
            .row = index,
            .n_top = p.n_logprobs,
            .may_forbid = row.mask != nullptr || !p.logit_bias.empty()};
  if (has_penalties(p))
    d.repetition = p.repetition_penalty, d.presence = p.presence_penalty, d.frequency = p.frequency_penalty;
  return d;
}

Sampled sampled_of(const RowDrawn& drawn) {
  Sampled sampled{.token = drawn.token, .logprob = drawn.logprob, .top = {}};
  for (int i = 0; i < drawn.n_top; ++i) sampled.top.push_back({drawn.top[i], drawn.top_logprob[i]});
  return sampled;
}

}  // namespace

Draws::~Draws() {
  if (drawn_event_ != nullptr) cudaEventDestroy(drawn_event_);
  if (copied_event_ != nullptr) cudaEventDestroy(copied_event_);
}

void Draws::sample(const Tensor& logits, std::span<const SampleRow> rows) {
  rows_.assign(rows.begin(), rows.end());
  n_vocab_ = logits.cols;
  host_rows_.clear();
  drawn_.clear();
  if (rows.empty()) {
    if (core_.clock) core_.clock->end();
    return;
  }
  CHECK_LE(static_cast<int64_t>(rows.size()), logits.rows);
  const bool has_logprobs = std::ranges::any_of(rows, is_estimate);
  greedy_ = std::ranges::all_of(rows, is_plain_greedy) && (!has_logprobs || can_argmax_logprob(logits));
  try {
    greedy_ ? sample_greedy(logits, has_logprobs) : sample_rows(logits);
  } catch (...) {
    rows_.clear(), host_rows_.clear();  // as if nothing was drawn
    throw;
  }
  if (core_.clock) core_.clock->end();
  if (drawn_event_ == nullptr)
    check(cudaEventCreateWithFlags(&drawn_event_, cudaEventDisableTiming), "cudaEventCreate");
  check(cudaEventRecord(drawn_event_, device_.stream()), "cudaEventRecord");
}

// The pinned memory: the keys, then the log-probabilities.
void Draws::sample_greedy(const Tensor& logits, bool has_logprobs) {
  const size_t n = rows_.size(), before = argmax_.size();
  auto* best = static_cast<Key*>(core_.memory.grown(best_, n * sizeof(Key)));
  auto* copy = static_cast<Key*>(core_.memory.grown(sampled_, n * (sizeof(Key) + sizeof(float)), Place::kPinned));
  auto* logprobs = has_logprobs ? reinterpret_cast<float*>(copy + n) : nullptr;
  auto* rows = static_cast<RowArgmax*>(core_.memory.grown(argmax_, n * sizeof(RowArgmax)));
  if (argmax_.size() != before) check(cudaMemsetAsync(rows, 0, argmax_.size(), device_.stream()), "cudaMemsetAsync");
  argmax_rows(best, copy, logprobs, rows, logits.slice_rows(0, static_cast<int64_t>(n)), device_);
  check_launch("argmax_rows");
}

// Fills one piece of pinned memory for the kernel, with the rows' draws, edits and masks, and copies it with one copy.
void Draws::sample_rows(const Tensor& logits) {
  std::vector<RowDraw> draws;
  std::vector<LogitEdit> edits;
  std::vector<const uint32_t*> masks;
  counts_.resize(static_cast<size_t>(n_vocab_));
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (is_for_host(rows_[i])) host_rows_.push_back(i);
    if (is_for_host(rows_[i])) continue;
    RowDraw d = draw_of(rows_[i], static_cast<int>(i));
    d.first_edit = static_cast<int32_t>(edits.size());
    add_edits(rows_[i], counts_, edits);
    d.n_edits = static_cast<int32_t>(edits.size()) - d.first_edit;
    if (rows_[i].mask != nullptr) masks.push_back(rows_[i].mask);
    draws.push_back(d);
  }
  const size_t mask_words = static_cast<size_t>(n_vocab_ + 31) / 32;
  const size_t edits_at = draws.size() * sizeof(RowDraw), masks_at = edits_at + edits.size() * sizeof(LogitEdit);
  const size_t bytes = masks_at + masks.size() * mask_words * 4;
  auto* to = static_cast<char*>(core_.memory.grown(draws_, bytes));
  auto* from = static_cast<char*>(core_.memory.grown(draws_pinned_, bytes, Place::kPinned));
  size_t n_masks = 0;
  for (RowDraw& d : draws) {
    if (rows_[d.row].mask != nullptr) d.mask = reinterpret_cast<uint32_t*>(to + masks_at) + n_masks++ * mask_words;
  }
  std::memcpy(from, draws.data(), edits_at);
  std::memcpy(from + edits_at, edits.data(), masks_at - edits_at);
  for (size_t i = 0; i < masks.size(); ++i) std::memcpy(from + masks_at + i * mask_words * 4, masks[i], mask_words * 4);
  copy_draws(to, from, bytes);

  const size_t row_bytes = static_cast<size_t>(n_vocab_) * sizeof(float), drawn_bytes = rows_.size() * sizeof(RowDrawn);
  auto* drawn = static_cast<RowDrawn*>(core_.memory.grown(best_, drawn_bytes));
  auto* pinned =
      static_cast<char*>(core_.memory.grown(sampled_, drawn_bytes + host_rows_.size() * row_bytes, Place::kPinned));
  if (!draws.empty()) {
    draw_rows(drawn, logits, reinterpret_cast<RowDraw*>(to), static_cast<int>(draws.size()),
              reinterpret_cast<LogitEdit*>(to + edits_at), device_);
    check_launch("draw_rows");
    check(cudaMemcpyAsync(pinned, drawn, drawn_bytes, cudaMemcpyDeviceToHost, device_.stream()), "cudaMemcpyAsync");
  }
  for (size_t i = 0; i < host_rows_.size(); ++i)
    check(cudaMemcpyAsync(pinned + drawn_bytes + i * row_bytes,
                          logits.f32() + static_cast<int64_t>(host_rows_[i]) * logits.stride, row_bytes,
                          cudaMemcpyDeviceToHost, device_.stream()),
          "cudaMemcpyAsync");
}

// The copy does not wait for the step in flight, because copying masks takes 1 % of a small model's step. If the
// previous sample's draws may still be running, the copy waits for them, because they read the same memory.
void Draws::copy_draws(void* to, const void* from, size_t bytes) {
  const bool is_free = drawn_event_ != nullptr && cudaEventQuery(drawn_event_) == cudaSuccess;
  const cudaStream_t stream = is_free ? device_.copy_stream() : device_.stream();
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  if (!is_free) return;
  if (copied_event_ == nullptr)
    check(cudaEventCreateWithFlags(&copied_event_, cudaEventDisableTiming), "cudaEventCreate");
  check(cudaEventRecord(copied_event_, stream), "cudaEventRecord");
  check(cudaStreamWaitEvent(device_.stream(), copied_event_), "cudaStreamWaitEvent");
}

std::vector<Sampled> Draws::take() {
  device_.make_current();
  collect();
  rows_.clear();
  return std::exchange(drawn_, {});
}

bool Draws::is_drawn() const {
  return rows_.empty() || !drawn_.empty() || cudaEventQuery(drawn_event_) != cudaErrorNotReady;
}

std::span<const int32_t> Draws::host_drawn_tokens(const Batch& batch) {
  if (host_rows_.empty()) return batch.tokens;
  collect();
  return with_drawn_tokens(batch, drawn_, tokens_);
}

BatchUpload::Draws Draws::on_device() const {
  CHECK(best_.data() != nullptr);
  return {greedy_ ? static_cast<const Key*>(best_.data()) : nullptr,
          greedy_ ? nullptr : static_cast<const RowDrawn*>(best_.data())};
}

// Waits for the last sample's draws and puts them into drawn_.
void Draws::collect() {
  if (rows_.empty() || !drawn_.empty()) return;
  ranks_.await(drawn_event_);
  if (core_.clock) core_.clock->collect();
  std::vector<Sampled>& sampled = drawn_;
  sampled.resize(rows_.size());
  if (greedy_) {
    const auto* keys = static_cast<const Key*>(sampled_.data());
    const auto* logprobs = reinterpret_cast<const float*>(keys + sampled.size());
    for (size_t i = 0; i < sampled.size(); ++i) {
      sampled[i].token = token_of(keys[i]);
      if (is_estimate(rows_[i])) sampled[i].logprob = logprobs[i];
    }
    return;
  }
  const auto* drawn = static_cast<const RowDrawn*>(sampled_.data());
  for (size_t i = 0, host = 0; i < rows_.size(); ++i) {
    if (host < host_rows_.size() && host_rows_[host] == i) {
      ++host;
    } else {
      sampled[i] = sampled_of(*drawn++);
    }
  }
  if (!host_rows_.empty())
    sample_on_host(reinterpret_cast<const float*>(static_cast<const RowDrawn*>(sampled_.data()) + rows_.size()),
                   sampled);
}

void Draws::sample_on_host(const float* logits /* [host rows, n_vocab] */, std::vector<Sampled>& sampled) {
  if (!pool_) pool_ = std::make_unique<ThreadPool>();
  const auto n_rows = static_cast<int64_t>(host_rows_.size()), n_tasks = std::min<int64_t>(n_rows, pool_->size());
  pool_->parallel_for(n_tasks, [&](int64_t task, int) {
    SamplerScratch scratch(static_cast<int>(n_vocab_));
    for (int64_t i = task; i < n_rows; i += n_tasks) {
      const size_t row = host_rows_[i];
      sampled[row] = draw_row({logits + i * n_vocab_, static_cast<size_t>(n_vocab_)}, rows_[row], scratch);
    }
  });
}

}  // namespace ingot::cuda
