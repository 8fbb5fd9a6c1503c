// A step of CudaBackend: the batch and the recorded graph.
//
// Steps whose sequences all have the same small number of tokens need the same launches each time, because kernels read
// lengths and blocks on the device. Such a step is recorded as a CUDA graph and replayed. The number of sequences is
// padded to one of kBuckets. The graphs of a program's decode steps are recorded when the program is prepared, so no
// request waits for a recording. Other recordable steps run without a graph the first time, and are recorded while the
// device works. --check-replay compares replays with direct launches.
//
// In small models, a kernel takes less time than a launch, so a single kernel runs all layers.
#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <exception>
#include <utility>

#include "backend/blocks/remote.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/recorded_context.h"
#include "base/error.h"
#include "base/log.h"

namespace ingot {

using cuda::check;
using cuda::check_launch;
using cuda::context_of;
using cuda::kContexts;

namespace {

constexpr int kBuckets[] = {1, 2, 4, 7, 8, 14, 16, 24, 28, 32, 48, 64, 96, 128, 160, 192, 224, 256};
// Only of programs that run on clusters. An H100 and an H200 have room for 7 clusters of 16 blocks or 14 of 8 at once.
constexpr int kClusterBuckets[] = {7, 14, 28};
constexpr int kMaxRecordedOnClusters = 16;  // tokens of a sequence
constexpr int kMaxGraphs = 64;              // of a program
constexpr int kMaxHeadGraphs = 24;          // of a program of a draft head, which guesses for few sequences
constexpr int kMaxHeadSequences = 8;        // of a draft head's steps that are recorded at load
static_assert(kContexts[0] == cuda::kSplitKeys &&
              std::ranges::find(kContexts, cuda::kMaxClusterKv) != std::end(kContexts));

// The largest number of sequences in a bucket within these limits.
int most_sequences(const StepLimits& limits, int q_len) {
  const int most = std::min({limits.max_seqs, limits.max_tokens / q_len, kBuckets[std::size(kBuckets) - 1]});
  return limits.max_logits > 0 ? std::min(most, limits.max_logits / q_len) : most;
}

bool is_cluster_bucket(int bucket) { return std::ranges::find(kClusterBuckets, bucket) != std::end(kClusterBuckets); }

Padding padding_of(const Program& program, int n_seqs, int q_len, int n_logits) {
  Padding padding{.n_seqs = n_seqs, .q_len = q_len, .n_logits = n_logits};
  for (const KvCache* kv : program.kv) {
    const int table = kv->shape.table;
    padding.blocks[static_cast<size_t>(table)] = kv->shape.n_blocks;
    padding.n_tables = std::max(padding.n_tables, table + 1);
    padding.n_blocks = (q_len + kv->shape.block_size - 1) / kv->shape.block_size;
  }
  if (program.states != nullptr) padding.state = program.states->shape.n_slots;
  return padding;
}

}  // namespace

void CudaBackend::begin(const Batch& batch) { start(batch, {}, context_of(longest(batch), limits_.max_kv_len)); }

void CudaBackend::start(const Batch& batch, const Padding& padding, int most_kv) {
  device_.make_current();
  load_ready_kernels();
  Batch known = batch;
  known.tokens = host_drawn_tokens(batch);
  set_step(known, {.n_tokens = batch.n_tokens() + padding.n_seqs * padding.q_len,
                   .n_seqs = batch.n_seqs() + padding.n_seqs,
                   .n_logits = batch.n_logits() + padding.n_logits});
  n_tokens_ = size().n_tokens, n_seqs_ = size().n_seqs;
  most_kv_ = most_kv;
  max_q_len_ = padding.q_len;
  n_of_len_ = {};
  const auto count = [&](int n_seqs, int q_len) {
    n_of_len_[q_len <= cuda::AttentionStep::kFewTokens ? q_len : 0] += n_seqs;
  };
  count(padding.n_seqs, padding.q_len);
  min_q_len_ = padding.n_seqs > 0 ? padding.q_len : n_tokens_;
  for (int seq = 0; seq < batch.n_seqs(); ++seq) {
    max_q_len_ = std::max(max_q_len_, batch.q_len(seq));
    min_q_len_ = std::min(min_q_len_, batch.q_len(seq));
    count(1, batch.q_len(seq));
    for (int t = batch.q_start[seq]; t < batch.q_start[seq + 1]; ++t)
      CHECK_EQ(batch.positions[t], batch.kv_len[seq] - batch.q_start[seq + 1] + t);
  }
  const bool has_drawn =
      std::ranges::any_of(known.tokens, [](int32_t token) { return token < 0; }) && (!nccl_ || ranks()->rank() == 0);
  CHECK(!has_drawn || best_.data() != nullptr);
  const auto* keys = has_drawn && greedy_ ? static_cast<const cuda::Key*>(best_.data()) : nullptr;
  const auto* drawn = has_drawn && !greedy_ ? static_cast<const cuda::RowDrawn*>(best_.data()) : nullptr;
  if (device_batch_.upload(known, padding, {keys, drawn}, std::exchange(copy_, {}), block_size_, device_))
    drop_graphs();
  if (nccl_) share_drawn_tokens(batch);
}

// The kernel that uploads the next batch also copies, which saves a launch.
void CudaBackend::copy_before_run(Tensor y, Tensor x) {
  const auto fits = [](const Tensor& t) { return t.stride == t.cols && on_16_bytes(t) && t.cols % 4 == 0; };
  if (!fits(y) || !fits(x)) return copy(y, x);
  finish_copy();
  copy_ = {y.f32(), x.f32(), x.rows * x.cols};
}

void CudaBackend::finish_copy() {
  const cuda::FloatCopy todo = std::exchange(copy_, {});
  if (todo.n == 0) return;
  check(cudaMemcpyAsync(todo.to, todo.from, static_cast<size_t>(todo.n) * sizeof(float), cudaMemcpyDeviceToDevice,
                        device_.stream()),
        "cudaMemcpyAsync");
}

int CudaBackend::longest(const Batch& batch) {
  return batch.kv_len.empty() ? 0 : *std::ranges::max_element(batch.kv_len);
}

// Whether recorded steps of this many tokens run on clusters.
bool CudaBackend::replays_on_clusters(const Program& program, int n_tokens) const {
  const auto steps = fused_steps_.find(program.id);
  return steps != fused_steps_.end() && n_tokens <= cuda::kMaxClusterTokens &&
         steps->second.on_clusters[static_cast<size_t>(n_tokens)];
}

// Whether steps with this many tokens of each sequence are recorded.
bool CudaBackend::is_recorded(const Program& program, int q_len) const {
  return q_len <= kMaxRecordedTokens || (q_len <= kMaxRecordedOnClusters && replays_on_clusters(program, q_len));
}

// The number of sequences that a step is padded to.
int CudaBackend::bucket_of(const Program& program, int n_seqs, int q_len, int most) const {
  const int* bucket = std::ranges::lower_bound(kBuckets, n_seqs);
  while (is_cluster_bucket(*bucket) && !replays_on_clusters(program, *bucket * q_len)) ++bucket;
  return std::min(*bucket, most);
}

// The longest context on the grid, for recorded steps of n_seqs sequences; 0: they do not run on the grid.
int CudaBackend::longest_on_grid(const Program& program, int n_seqs, int q_len) const {
  const auto steps = fused_steps_.find(program.id);
  const bool fits = steps != fused_steps_.end() && q_len == 1 && n_seqs <= cuda::kMaxGridTokens;
  return fits ? steps->second.longest_on_grid[static_cast<size_t>(n_seqs)] : 0;
}

int CudaBackend::recorded_context(const Program& program, int n_seqs, int q_len, int kv_len) const {
  const int n_tasks = std::max(n_seqs * program.least_kv_heads(), 1);
  return cuda::recorded_context(kv_len,
                                {.max_kv_len = limits_.max_kv_len,
                                 .n_seqs = n_seqs,
                                 .on_clusters = replays_on_clusters(program, n_seqs * q_len) ? cuda::kMaxClusterKv : 0,
                                 .on_grid = longest_on_grid(program, n_seqs, q_len),
                                 .most_splits = (2 * device_.n_multiprocessors() + n_tasks - 1) / n_tasks});
}

std::optional<CudaBackend::GraphKey> CudaBackend::key_of(const Program& program, const Batch& batch) const {
  if (batch.n_seqs() == 0 || batch.n_tokens() % batch.n_seqs() != 0 || !batch.second_rows.empty() ||
      !batch.embeddings.empty())
    return std::nullopt;
  const int q_len = batch.n_tokens() / batch.n_seqs(),
            most = is_recorded(program, q_len) ? most_sequences(limits_, q_len) : 0;
  if (batch.n_seqs() > most) return std::nullopt;
  for (int seq = 0; seq < batch.n_seqs(); ++seq)
    if (batch.q_len(seq) != q_len) return std::nullopt;
  const int n_seqs = bucket_of(program, batch.n_seqs(), q_len, most);
  return GraphKey{program.id, n_seqs, q_len, recorded_context(program, n_seqs, q_len, longest(batch))};
}

bool CudaBackend::has_room_for_graph(const Program& program) const {
  const auto n = std::ranges::count_if(graphs_, [&](const auto& graph) { return graph.first.program == program.id; });
  return n < (program.has_pair ? kMaxHeadGraphs : kMaxGraphs);
}

void CudaBackend::run(const Program& program, const Batch& batch) {
  device_.make_current();
  const std::optional<GraphKey> key = key_of(program, batch);
  if (!key) {
    begin(batch);
    if (clock_) clock_->begin(n_tokens_, n_seqs_);
    return run_blocks(program);
  }
  const int n_pad = key->n_seqs - batch.n_seqs();
  const bool has_rows = program.has_logits() || batch.n_logits() > 0;  // the record reads logit_rows
  start(batch, padding_of(program, n_pad, key->q_len, has_rows ? key->n_seqs * key->q_len - batch.n_logits() : 0),
        key->most_kv);
  if (clock_) clock_->begin(n_tokens_, n_seqs_);
  const auto known = graphs_.find(*key);
  if (known == graphs_.end() || known->second.exec == nullptr) {  // null: the recording failed
    run_blocks(program);
    if (has_room_for_graph(program)) capture(graphs_[*key], program);  // while the device works on the step
    return;
  }
  Graph& graph = known->second;
  if (checks_replays_) {
    check_replay(graph, program);
  } else {
    replay(graph);
  }
  if (graph.is_stale) capture(graph, program);
}

// Launches the graph and runs its remote blocks. If a block fails, the GPU is still released, because it waits for the
// host.
void CudaBackend::replay(const Graph& graph) {
  check(cudaGraphLaunch(graph.exec, device_.stream()), "cudaGraphLaunch");
  std::exception_ptr fault;
  for (const RemoteBlock* block : graph.crossings) {
    crossing_.await_rows(device_);
    try {
      if (!fault && batch().n_tokens() > 0) block->run(batch(), crossing_.rows(0));
    } catch (...) {
      fault = std::current_exception();
    }
    crossing_.give_back();
  }
  if (fault) std::rethrow_exception(fault);
  device_.make_current();  // a block's run may have used another GPU
}

// In a recorded step, two kernels exchange the rows with the host. Otherwise the host waits for the stream.
void CudaBackend::remote(const RemoteBlock& b) {
  if (capturing_) {
    captured_crossings_.push_back(&b);
    return crossing_.enqueue(b.x.slice_rows(0, n_tokens_), device_);
  }
  float* rows = crossing_.rows(b.x.rows * b.x.cols);
  const int n = batch().n_tokens();
  if (n == 0) return;  // a warm-up step of padding only
  const size_t bytes = static_cast<size_t>(n) * static_cast<size_t>(b.x.cols) * sizeof(float);
  if (b.reads_x)
    check(cudaMemcpyAsync(rows, b.x.data, bytes, cudaMemcpyDeviceToHost, device_.stream()), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
  b.run(batch(), rows);
  device_.make_current();
  check(cudaMemcpyAsync(b.x.data, rows, bytes, cudaMemcpyHostToDevice, device_.stream()), "cudaMemcpyAsync");
}

// Records the decode steps of a program. First, a step of each size runs once with padding only, so that the driver
// loads kernel code and cuBLASLt plans are made. Padding writes to no sequence's blocks. Contexts of the same step size
// need the same kernels and plans. On clusters, also records the steps that verify drafts of one sequence: without a
// graph, their first step takes several times as long, so drafts would seem not to pay.
void CudaBackend::prepare_program(const Program& program) {
  device_.make_current();
  join_weights(program);
  if (program.kv.empty() || !program.has_logits()) return;
  const auto begun = std::chrono::steady_clock::now();
  compile_layers(program);
  meet_ranks();
  const size_t before = available_bytes();
  size_t n_graphs = 0;
  const int most = std::min(most_sequences(limits_, 1), program.has_pair ? kMaxHeadSequences : INT_MAX);
  const auto record = [&](int n_seqs, int q_len, int most_kv, bool runs_first) {
    const int context = recorded_context(program, n_seqs, q_len, std::min(most_kv, limits_.max_kv_len));
    const GraphKey key{program.id, n_seqs, q_len, context};
    if (graphs_.contains(key) || !has_room_for_graph(program)) return;
    start({}, padding_of(program, n_seqs, q_len, n_seqs * q_len), context);
    if (runs_first) run_blocks(program);
    capture(graphs_[key], program);
    ++n_graphs;
  };
  for (const int bucket : kBuckets) {
    if (is_cluster_bucket(bucket) && !replays_on_clusters(program, bucket)) continue;
    const int n_seqs = std::min(bucket, most);
    if (nccl_) {  // ranks have to run the same steps, but they may record different ones
      start({}, padding_of(program, n_seqs, 1, n_seqs), context_of(kContexts[0], limits_.max_kv_len));
      run_blocks(program);
      meet_ranks();
    }
    for (const int context : kContexts) record(n_seqs, 1, context, !nccl_ && (n_seqs == 1 || context == kContexts[0]));
    if (n_seqs == most) break;
  }
  const bool verifies = replays_on_clusters(program, 2) && !program.has_pair;  // not a draft head
  for (int q_len = 2; verifies && is_recorded(program, q_len); ++q_len)
    if (most_sequences(limits_, q_len) > 0) record(1, q_len, kContexts[0], true);
  check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  log_info("{} steps recorded in {:.2f} s, in {} MiB", n_graphs, took.count(),
           (before - std::min(before, available_bytes())) >> 20);
}

// Finds out which recorded steps run on clusters. Waits until the kernels that run all layers on the grid are compiled.
// Otherwise results would depend on when the kernel becomes ready.
void CudaBackend::compile_layers(const Program& program) {
  for (const Block& block : program.blocks) {
    const auto* layers = block.as<PlainLayersBlock>();
    const auto step = layers != nullptr ? layers_step_of(*layers, 1) : nullptr;
    if (!step) continue;
    for (int n = cuda::kMaxClusterTokens; n >= 1; --n) {
      step->n_tokens = n;
      if (cuda::runs_on_clusters(*step, true, device_))
        fused_steps_[program.id].on_clusters.set(static_cast<size_t>(n));
    }
    if (!specialised_) continue;
    const auto grid_kernel_of = [&](int n_tokens) {
      step->n_tokens = n_tokens;
      return grid_kernel(*step);
    };
    const int most = std::min(most_sequences(limits_, 1), cuda::kMaxGridTokens);
    grid_kernel_of(1);
    if (most > 1) grid_kernel_of(2);  // the kernel for any number of tokens from two on
    specialised_->wait();
    load_ready_kernels();
    for (int n = 1; n <= most; ++n) {
      if (grid_kernel_of(n) == nullptr) continue;
      int& longest = fused_steps_[program.id].longest_on_grid[static_cast<size_t>(n)];
      const int of_block = cuda::longest_on_grid(*step);
      longest = longest == 0 ? of_block : std::min(longest, of_block);  // a program may have several such blocks
    }
  }
}

void CudaBackend::capture(Graph& graph, const Program& program) {
  check(cudaStreamBeginCapture(device_.stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  capturing_ = true;
  captured_crossings_.clear();
  std::exception_ptr fault;
  try {
    run_blocks(program);
  } catch (...) {
    fault = std::current_exception();
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
  if (graph.exec != nullptr) retired_.push_back(graph.exec);
  graph = {};
  graph.crossings = captured_crossings_;
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

// Runs the replay first, then direct launches from the same state. So the check also finds data that the replay fails
// to write, in this step or, through the cache, in a later step.
void CudaBackend::check_replay(const Graph& graph, const Program& program) {
  std::vector<Written> places = activations_;
  places.insert(places.end(), states_.begin(), states_.end());
  const auto before = downloaded(places);
  replay(graph);
  const auto replayed = downloaded(places);
  for (size_t i = 0; i < places.size(); ++i)
    check(cudaMemcpyAsync(places[i].data, before[i].data(), places[i].bytes, cudaMemcpyHostToDevice, device_.stream()),
          "cudaMemcpyAsync");
  run_blocks(program);
  const auto plain = downloaded(places);
  for (size_t i = 0; i < places.size(); ++i) {
    if (replayed[i] == plain[i]) continue;
    const auto at = std::ranges::mismatch(replayed[i], plain[i]).in1 - replayed[i].begin();
    throw Error(
        "a replayed step of {} tokens differs from plain launches in buffer {} ({} bytes), at byte {}: this is a bug "
        "in ingot; please report it",
        n_tokens_, i, places[i].bytes, at);
  }
}

void CudaBackend::drop_graphs() {
  for (auto& [key, graph] : graphs_) retired_.push_back(graph.exec);
  graphs_.clear();
  if (retired_.empty()) return;
  cudaStreamSynchronize(device_.stream());  // ignores the status: the destructor also calls this for a lost device
  for (cudaGraphExec_t exec : std::exchange(retired_, {}))
    if (exec != nullptr) cudaGraphExecDestroy(exec);
}

void CudaBackend::mark_graphs_stale() {
  for (auto& [key, graph] : graphs_) graph.is_stale = true;
}

void CudaBackend::synchronize() { check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize"); }

}  // namespace ingot
