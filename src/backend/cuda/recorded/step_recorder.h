// StepRecorder: records the launches of a step as a CUDA graph, and replays the graph for later steps of the same size.
// A step runs without a graph the first time, and is recorded while the device works. record_book.h says what happens
// if a recording fails. --check-replay compares replays with direct launches.
#pragma once
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "backend/blocks/remote.h"
#include "backend/cuda/core.h"
#include "backend/cuda/crossing/crossing.h"
#include "backend/cuda/recorded/record_book.h"
#include "backend/cuda/recorded/record_sizes.h"

namespace ingot::cuda {

class StepRecorder {
 public:
  // `run_blocks` launches the blocks of a program on the core's step.
  StepRecorder(Core& core, std::function<void(const Program&)> run_blocks);

  // Runs the core's step, which has the size of `key`.
  void run(const RecordKey& key, const Program& program, const Batch& batch);
  bool wants(const RecordKey& key, const Program& program) const;  // there is no record, and room for it
  bool record(const RecordKey& key, const Program& program);       // returns false if it fails
  // The rows of a block of another device. A recorded step exchanges them with the host by two kernels. Otherwise the
  // host waits for the stream.
  void remote(const RemoteBlock& block, const Batch& batch);

  void drop();                               // all records, after the work in the stream
  void mark_stale() { book_.mark_stale(); }  // records are correct, but faster kernels are ready by now

  void check_replays() { checks_ = true; }
  // Buffers that a check restores. KV caches are not among them, because a step that runs twice writes the same.
  void add_activations(const Written& place) { activations_.push_back(place); }
  void set_states(const Written& place) { states_ = place; }

 private:
  struct DestroyGraph {
    void operator()(cudaGraphExec_t exec) const { cudaGraphExecDestroy(exec); }
  };
  struct Graph {
    std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph> exec;
    std::vector<const RemoteBlock*> crossings;  // in order
  };
  // The end of the work that is enqueued now on the current device's `stream`.
  class Mark {
   public:
    explicit Mark(cudaStream_t stream);
    bool has_passed() const { return event_ && cudaEventQuery(event_.get()) == cudaSuccess; }

   private:
    struct DestroyEvent {
      void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
    };
    std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent> event_;  // null: it could not be made
  };
  bool has_room(const Program& program) const;
  Graph capture(const Program& program);
  void replay(const Graph& graph, const Batch& batch);
  void compare(const Graph& graph, const Program& program, const Batch& batch);
  std::vector<std::vector<char>> downloaded(const std::vector<Written>& places);

  Core& core_;
  Device& device_ = core_.device;
  const std::function<void(const Program&)> run_blocks_;
  RecordBook<RecordKey, Graph, Mark> book_;
  bool is_recording_ = false;
  std::vector<const RemoteBlock*> crossings_;  // of the step that is being recorded
  Crossing crossing_;
  bool checks_ = false;
  std::vector<Written> activations_;
  Written states_;
};

}  // namespace ingot::cuda
