// Engine: the step loop. Requests come in through a queue from any thread; plan, fill, forward, sample and emit run on
// one: the engine's own after start(), or the caller's by step(). Called by the command line and the server.
//
// Where the runner overlaps, two steps are under way: while the device computes one, the host tells consumers what the
// one before drew, and plans the next. A sequence whose last token has not been seen takes part all the same; if that
// token ends it, what comes of the extra step is dropped.
//
// A request may propose drafts of its next tokens. One step draws behind each of them, and the longest run of drafts
// that equal the draws before them is accepted, with one draw more; the output is that without drafts, in fewer
// steps.
//
// Text that a request's grammar forces becomes tokens without draws (jump_ahead.h). The next step computes all of them
// at once, like a chunk of a prompt. Where steps overlap, the step under way draws a token in place of the first of
// them; that draw is dropped.
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
  // Ends of the parts, in order. Where steps overlap, others' parts lie between submitted and sampled.
  Clock::time_point begin{}, planned{}, filled{}, submitted{}, waiting{}, sampled{}, emitted{};
  double mask_ms = 0;  // of the host, while the forward ran: masks of constrained sequences
  int n_tokens = 0;
  int n_seqs = 0;
  int n_decodes = 0;
  int n_preempted = 0;
  int n_cached = 0;   // tokens that sequences admitted in this step found in the prefix cache
  int n_emitted = 0;  // tokens that somebody got
  int n_forced = 0;   // of these, not drawn: a grammar forced them
  int n_running = 0;  // this and the rest: as the forward begins
  int n_waiting = 0;
  int blocks_used = 0;
  int blocks_cached = 0;
  int states_used = 0;
  int states_cached = 0;
  bool failed = false;
  bool overlapped = false;
};

struct EngineGauges {
  int n_running = 0;
  int n_waiting = 0;
  int n_paused = 0;
  int blocks_used = 0;    // held by sequences
  int blocks_cached = 0;  // held by nobody, kept for their prefixes; the rest are blank
  int n_blocks = 0;
  int block_size = 0;   // tokens
  int states_used = 0;  // slots of recurrent layers' states: the same
  int states_cached = 0;
  int n_states = 0;
  // Since the start:
  int64_t n_steps = 0;
  int64_t n_failed_steps = 0;
  int64_t n_preemptions = 0;
  int64_t n_blocks_given_up = 0;  // by sequences that went on, in front of the model's window
  int64_t n_finished = 0;
  int64_t n_finished_by[kFinishReasons] = {};  // for each FinishReason
  int64_t n_computed_tokens = 0;               // by steps: prompts, what had to be computed anew, and decodes
  int64_t n_prompt_tokens = 0;                 // of requests that began
  int64_t n_cached_tokens = 0;                 // of these, found in the prefix cache
  int64_t n_output_tokens = 0;
  int64_t n_forced_tokens = 0;    // of these, not drawn: a grammar forced them
  int64_t n_draft_tokens = 0;     // that steps verified
  int64_t n_accepted_tokens = 0;  // of these, equal to what was drawn
  Clock::time_point last_step{};  // when the last one was done; for a watchdog
};

struct EngineOptions {
  int chunk = 0;  // tokens of one prompt in one step, cut to the runner's batch; 0: as many as that has
  std::function<void(const StepStats&)> on_step = {};  // called on the stepping thread
  bool prefix_cache = true;
  bool jump_ahead = true;       // text that a grammar forces becomes tokens without a draw of each
  int max_queue = 0;            // requests that wait for their first step; 0: any number
  std::optional<bool> overlap;  // empty: as the runner says
};

class Engine {
 public:
  explicit Engine(Runner& runner, const EngineOptions& options = {});
  ~Engine();  // stops
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // From any thread. submit throws Error for a request that can never run, or once the engine has stopped; try_submit
  // does so too, and takes nothing when the queue is full. The others take effect before the next step, and do nothing
  // to a request that has finished. A paused request keeps its place but no part in steps: its reader does not read.
  RequestId submit(Request request);
  std::optional<RequestId> try_submit(Request request);
  void cancel(RequestId id);
  void pause(RequestId id);
  void resume(RequestId id);
  EngineGauges gauges() const;
  std::string fault() const;  // why the engine ended by itself, with all of its requests; empty while it is well
  bool lost_device() const;   // that was why (DeviceLost)
  const RunnerInfo& info() const { return runner_.info(); }

  void start();  // steps on its own thread until stop()
  void stop();   // cancels what is left; the engine stays stopped

  // Without start(): takes what has been submitted and does one step. False when there was nothing to do. Throws
  // DeviceLost.
  bool step();
  // Without start(): a prompt and a decode step that nobody sees, to load code and weights. Throws Error when they
  // fail.
  void warm_up();

 private:
  enum class Order : uint8_t { kSubmit, kCancel, kPause, kResume };
  struct Message {
    Order order;
    std::unique_ptr<Sequence> sequence;  // to submit
    RequestId id = 0;                    // of the others
  };
  // A step on its way: planned, and not done.
  struct Flight {
    const Step* step = nullptr;  // null: none
    StepStats stats;
  };

  RequestId push(Request request);
  std::unique_ptr<Sequence> make_sequence(Request request);
  void run();
  bool receive(bool block);
  void obey(Message& message);
  void take_in(std::unique_ptr<Sequence> sequence);
  void end_late_requests();
  void run_step();
  Flight launch(BatchBuilder& builder, std::string* fault);
  void land(Flight& flight, std::string fault);
  void settle(const StepItem& item, std::span<const Sampled> drawn);
  void settle_failed(const StepItem& item, const std::string& fault);
  void emit_progress(const Sequence& sequence);
  void emit_scores(const StepItem& item, std::span<const Sampled> scored);
  int accept(Sequence& sequence, std::span<const Sampled> drawn);
  void emit_tokens(Sequence& sequence, std::span<const Sampled> drawn);
  bool emit_next(Sequence& sequence, const Sampled& sampled, bool is_first);
  std::vector<int32_t> forced_tokens(Sequence& sequence, std::span<const int32_t> output);
  void emit_token(Sequence& sequence, const Sampled& sampled);
  void propose(Sequence& sequence);
  void cut_drafts(Sequence& sequence);
  void make_masks(Flight& flight);
  void make_masks(Sequence& sequence, int n_drafts);
  void finish(Sequence& sequence, FinishReason reason, const std::string& error = "", int32_t stop_token = -1);
  std::unique_ptr<Sequence> destroy(Sequence& sequence);
  void cancel_all();
  void die(const char* why, bool lost_device = false);
  void publish();
  bool idle() const { return scheduler_.idle() && flight_.step == nullptr; }

  Runner& runner_;
  const EngineOptions options_;
  const bool overlap_;
  Queue<Message> inbox_;
  std::atomic<RequestId> next_id_{1};
  std::atomic<int> n_queued_{0};  // submitted, and neither begun nor finished

  // Of the stepping thread.
  Scheduler scheduler_;
  BatchBuilder builders_[2];  // used in turn
  int next_builder_ = 0;
  Flight flight_;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  Clock::time_point next_limit_ = Clock::time_point::max();  // the earliest of all deadlines
  EngineGauges counts_;

  mutable std::mutex gauges_mutex_;
  EngineGauges gauges_;
  std::string fault_;
  bool lost_device_ = false;
  std::thread thread_;
};

}  // namespace ingot
