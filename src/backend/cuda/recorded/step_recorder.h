// StepRecorder: records the launches of a step as a CUDA graph, and replays the graph for later steps of the same size.
// A step runs without a graph the first time, and is recorded while the device works. --check-replay compares replays
// with direct launches.
#pragma once
#include <functional>
#include <map>
#include <vector>

#include "backend/blocks/remote.h"
#include "backend/cuda/core.h"
#include "backend/cuda/crossing/crossing.h"
#include "backend/cuda/recorded/record_sizes.h"

namespace ingot::cuda {

class StepRecorder {
 public:
  // `run_blocks` launches the blocks of a program on the core's step.
  StepRecorder(Core& core, std::function<void(const Program&)> run_blocks)
      : core_(core), run_blocks_(std::move(run_blocks)) {}

  // Runs the core's step, which has the size of `key`.
  void run(const RecordKey& key, const Program& program, const Batch& batch);
  bool wants(const RecordKey& key, const Program& program) const;  // there is no record, and room for it
  void record(const RecordKey& key, const Program& program);
  // The rows of a block of another device. A recorded step exchanges them with the host by two kernels. Otherwise the
  // host waits for the stream.
  void remote(const RemoteBlock& block, const Batch& batch);

  void drop();        // all records, after the work in the stream
  void mark_stale();  // records are correct, but faster kernels are ready by now

  void check_replays() { checks_ = true; }
  // Buffers that a check restores. KV caches are not among them, because a step that runs twice writes the same.
  void add_activations(const Written& place) { activations_.push_back(place); }
  void set_states(const Written& place) { states_ = place; }

 private:
  struct Graph {
    cudaGraphExec_t exec = nullptr;
    bool is_stale = false;
    std::vector<const RemoteBlock*> crossings = {};  // in order
  };
  bool has_room(const Program& program) const;
  void capture(Graph& graph, const Program& program);
  void replay(const Graph& graph, const Batch& batch);
  void compare(const Graph& graph, const Program& program, const Batch& batch);
  std::vector<std::vector<char>> downloaded(const std::vector<Written>& places);

  Core& core_;
  Device& device_ = core_.device;
  const std::function<void(const Program&)> run_blocks_;
  std::map<RecordKey, Graph> graphs_;
  std::vector<cudaGraphExec_t> retired_;  // replaced graphs, which may still be running
  bool is_recording_ = false;
  std::vector<const RemoteBlock*> crossings_;  // of the step that is being recorded
  Crossing crossing_;
  bool checks_ = false;
  std::vector<Written> activations_;
  Written states_;
};

}  // namespace ingot::cuda
