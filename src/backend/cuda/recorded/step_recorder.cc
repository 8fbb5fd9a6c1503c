#include "backend/cuda/recorded/step_recorder.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"

namespace ingot::cuda {

namespace {

constexpr int kMaxGraphs = 64;      // of a program
constexpr int kMaxHeadGraphs = 24;  // of a program of a draft head, which guesses for few sequences

}  // namespace

bool StepRecorder::has_room(const Program& program) const {
  const auto n = std::ranges::count_if(graphs_, [&](const auto& graph) { return graph.first.program == program.id; });
  return n < (program.has_pair ? kMaxHeadGraphs : kMaxGraphs);
}

bool StepRecorder::wants(const RecordKey& key, const Program& program) const {
  return !graphs_.contains(key) && has_room(program);
}

void StepRecorder::record(const RecordKey& key, const Program& program) { capture(graphs_[key], program); }

void StepRecorder::run(const RecordKey& key, const Program& program, const Batch& batch) {
  const auto known = graphs_.find(key);
  if (known == graphs_.end() || known->second.exec == nullptr) {  // null: the recording failed
    run_blocks_(program);
    if (has_room(program)) record(key, program);  // while the device works on the step
    return;
  }
  Graph& graph = known->second;
  if (checks_) {
    compare(graph, program, batch);
  } else {
    replay(graph, batch);
  }
  if (graph.is_stale) capture(graph, program);
}

void StepRecorder::capture(Graph& graph, const Program& program) {
  check(cudaStreamBeginCapture(device_.stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  is_recording_ = true;
  crossings_.clear();
  std::exception_ptr fault;
  try {
    run_blocks_(program);
  } catch (...) {
    fault = std::current_exception();
  }
  is_recording_ = false;
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
  graph.crossings = crossings_;
  const cudaError_t made = cudaGraphInstantiate(&graph.exec, recorded, 0);
  cudaGraphDestroy(recorded);
  check(made, "cudaGraphInstantiate");
}

// Launches the graph and runs its remote blocks. If a block fails, the GPU is still released, because it waits for the
// host.
void StepRecorder::replay(const Graph& graph, const Batch& batch) {
  check(cudaGraphLaunch(graph.exec, device_.stream()), "cudaGraphLaunch");
  std::exception_ptr fault;
  for (const RemoteBlock* block : graph.crossings) {
    crossing_.await_rows(device_);
    try {
      if (!fault && batch.n_tokens() > 0) block->run(batch, crossing_.rows(0));
    } catch (...) {
      fault = std::current_exception();
    }
    crossing_.give_back();
  }
  if (fault) std::rethrow_exception(fault);
  device_.make_current();  // a block's run may have used another GPU
}

void StepRecorder::remote(const RemoteBlock& b, const Batch& batch) {
  if (is_recording_) {
    crossings_.push_back(&b);
    return crossing_.enqueue(b.x.slice_rows(0, core_.step.n_tokens), device_);
  }
  float* rows = crossing_.rows(b.x.rows * b.x.cols);
  const int n = batch.n_tokens();
  if (n == 0) return;  // a warm-up step of padding only
  const size_t bytes = static_cast<size_t>(n) * static_cast<size_t>(b.x.cols) * sizeof(float);
  if (b.reads_x)
    check(cudaMemcpyAsync(rows, b.x.data, bytes, cudaMemcpyDeviceToHost, device_.stream()), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
  b.run(batch, rows);
  device_.make_current();
  check(cudaMemcpyAsync(b.x.data, rows, bytes, cudaMemcpyHostToDevice, device_.stream()), "cudaMemcpyAsync");
}

std::vector<std::vector<char>> StepRecorder::downloaded(const std::vector<Written>& places) {
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
void StepRecorder::compare(const Graph& graph, const Program& program, const Batch& batch) {
  std::vector<Written> places = activations_;
  if (states_.data != nullptr) places.push_back(states_);
  const auto before = downloaded(places);
  replay(graph, batch);
  const auto replayed = downloaded(places);
  for (size_t i = 0; i < places.size(); ++i)
    check(cudaMemcpyAsync(places[i].data, before[i].data(), places[i].bytes, cudaMemcpyHostToDevice, device_.stream()),
          "cudaMemcpyAsync");
  run_blocks_(program);
  const auto plain = downloaded(places);
  for (size_t i = 0; i < places.size(); ++i) {
    if (replayed[i] == plain[i]) continue;
    const auto at = std::ranges::mismatch(replayed[i], plain[i]).in1 - replayed[i].begin();
    throw Error(
        "a replayed step of {} tokens differs from plain launches in buffer {} ({} bytes), at byte {}: this is a bug "
        "in ingot; please report it",
        core_.step.n_tokens, i, places[i].bytes, at);
  }
}

void StepRecorder::drop() {
  CHECK(!is_recording_);
  for (auto& [key, graph] : graphs_) retired_.push_back(graph.exec);
  graphs_.clear();
  if (retired_.empty()) return;
  cudaStreamSynchronize(device_.stream());  // ignores the status: the destructor also calls this for a lost device
  for (cudaGraphExec_t exec : std::exchange(retired_, {}))
    if (exec != nullptr) cudaGraphExecDestroy(exec);
}

void StepRecorder::mark_stale() {
  for (auto& [key, graph] : graphs_) graph.is_stale = true;
}

}  // namespace ingot::cuda
