#include "backend/cuda/recorded/step_recorder.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "backend/cuda/entry.h"
#include "base/error.h"

namespace ingot::cuda {

namespace {

constexpr int kMaxGraphs = 64;      // of a program
constexpr int kMaxHeadGraphs = 24;  // of a program of a draft head, which guesses for few sequences

std::atomic<int> n_failing_recordings{0};  // for tests

bool recording_fails() { return n_failing_recordings > 0 && n_failing_recordings.fetch_sub(1) > 0; }

}  // namespace

void library::fail_recordings(int n) { n_failing_recordings = n; }
int library::failing_recordings() { return n_failing_recordings; }

StepRecorder::StepRecorder(Core& core, std::function<void(const Program&)> run_blocks)
    : core_(core), run_blocks_(std::move(run_blocks)), book_([this] { return Mark(device_.stream()); }) {}

StepRecorder::Mark::Mark(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess) event_.reset(event);
  if (event_ && cudaEventRecord(event, stream) != cudaSuccess) event_.reset();
  if (!event_) cudaGetLastError();
}

bool StepRecorder::has_room(const Program& program) const {
  const int n = book_.count_if([&](const RecordKey& key) { return key.program == program.id; });
  return n < (program.has_pair ? kMaxHeadGraphs : kMaxGraphs);
}

bool StepRecorder::wants(const RecordKey& key, const Program& program) const {
  return !book_.contains(key) && has_room(program);
}

bool StepRecorder::record(const RecordKey& key, const Program& program) {
  return book_.record(key, [&] { return capture(program); });
}

void StepRecorder::run(const RecordKey& key, const Program& program, const Batch& batch) {
  const auto again = [&](const Graph& graph) { checks_ ? compare(graph, program, batch) : replay(graph, batch); };
  book_.step(
      key, [&] { run_blocks_(program); }, again, [&] { return has_room(program); }, [&] { return capture(program); });
}

StepRecorder::Graph StepRecorder::capture(const Program& program) {
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
  cudaGraphExec_t exec = nullptr;
  const cudaError_t made = recording_fails() ? cudaErrorMemoryAllocation : cudaGraphInstantiate(&exec, recorded, 0);
  cudaGraphDestroy(recorded);
  check(made, "cudaGraphInstantiate");
  return {{exec, {}}, crossings_};
}

// Launches the graph and runs its remote blocks. If a block fails, the GPU is still released, because it waits for the
// host.
void StepRecorder::replay(const Graph& graph, const Batch& batch) {
  check(cudaGraphLaunch(graph.exec.get(), device_.stream()), "cudaGraphLaunch");
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
  if (book_.is_empty()) return;
  cudaStreamSynchronize(device_.stream());  // ignores the status: the destructor also calls this for a lost device
  book_.clear();
}

}  // namespace ingot::cuda
