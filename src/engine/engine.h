// Engine: the step loop. Requests come in through a queue from any thread; plan, fill, forward, sample and emit run on
// one: the engine's own after start(), or the caller's by step(). Called by the command line and the server.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/queue.h"
#include "engine/batch_builder.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "model/runner.h"

namespace ingot {

// One step, as --trace and the metrics see it.
struct StepStats {
  int64_t index = 0;
  Clock::time_point begin{}, planned{}, filled{}, submitted{}, sampled{}, emitted{};  // ends of the parts, in order
  int n_tokens = 0;
  int n_seqs = 0;
  int n_decodes = 0;
  int n_preempted = 0;
  int n_running = 0;    // this and the rest: as the forward begins
  int n_waiting = 0;
  int blocks_used = 0;
  bool failed = false;
};

struct EngineGauges {
  int n_running = 0;
  int n_waiting = 0;
  int blocks_used = 0;
  int n_blocks = 0;
  int64_t n_steps = 0;
  int64_t n_failed_steps = 0;
  int64_t n_preemptions = 0;
  int64_t n_finished = 0;
};

struct EngineOptions {
  int chunk = 512;                                      // tokens of one prompt in one step, cut to the runner's batch
  std::function<void(const StepStats&)> on_step = {};  // called on the stepping thread
};

class Engine {
 public:
  explicit Engine(Runner& runner, const EngineOptions& options = {});
  ~Engine();  // stops
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // From any thread. submit throws Error for a request that can never run, or once the engine has stopped; cancel takes
  // effect before the next step, and does nothing to a request that has finished.
  RequestId submit(Request request);
  void cancel(RequestId id);
  EngineGauges gauges() const;

  void start();  // steps on its own thread until stop()
  void stop();   // cancels what is left; the engine stays stopped

  // Without start(): takes what has been submitted and does one step. False when there was nothing to do.
  bool step();
  // Without start(): a prompt and a decode step that nobody sees, to load code and weights. Throws Error when they
  // fail.
  void warm_up();

 private:
  struct Message {
    std::unique_ptr<Sequence> submitted;  // or null:
    RequestId cancelled = 0;
  };

  void run();
  bool receive(bool block);
  void run_step();
  bool compute(const Batch& batch, StepStats& stats);
  void emit(const Step& step);
  void emit_token(Sequence& sequence, const Sampled& sampled);
  void finish(Sequence& sequence, FinishReason reason, const std::string& error = "", int32_t stop_token = -1);
  void cancel_all();
  void publish();

  Runner& runner_;
  const EngineOptions options_;
  Queue<Message> inbox_;
  std::atomic<RequestId> next_id_{1};

  // Of the stepping thread.
  Scheduler scheduler_;
  BatchBuilder builder_;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  std::vector<Sampled> sampled_;
  std::string step_error_;
  EngineGauges counts_;

  mutable std::mutex gauges_mutex_;
  EngineGauges gauges_;
  std::thread thread_;
};

}  // namespace ingot
