// Engine: the step loop. Any thread may submit requests through a queue. One thread plans, fills, runs, samples and
// emits: the engine's own thread after start(), or the caller's thread through step(). The command line and the server
// use the engine.
//
// If the runner overlaps steps, two steps are in flight. While the device computes one step, the host delivers the
// tokens of the previous step and plans the next step. A sequence takes part in the next step even when its last token
// is not known yet. If that token ends the sequence, the engine drops the result of the extra step.
//
// If the runner has several stages (RunnerInfo::n_stages), as many steps are in flight. Each step has a part of the
// decoding sequences, so all stages work. A sequence waits for its sampled token before its next step.
//
// A request may have a proposer, which guesses its next tokens (drafts). One step samples a token after each draft. The
// engine accepts the longest run of drafts that equal the sampled tokens, and one more sampled token. The output is the
// same as without drafts, in fewer steps. The engine chooses the number of drafts that makes the output fastest, which
// may be zero (speculate/draft_lengths.h).
//
// If a constraint's mask takes long, a worker makes the mask, and the sequence is in no step until then. The output is
// the same, because a draw depends on logits, mask, seed and position (engine_constraints.cc).
//
// Text that a request's grammar forces becomes tokens without sampling (jump_ahead.h). The next step computes all
// forced tokens at once, like a chunk of a prompt. If steps overlap, the step in flight samples a token in place of the
// first forced token. The engine drops that sampled token.
// A request may search with beams instead of sampling (beams.h). Then it has a sequence for each beam, and the
// sequences wait for each other at each token.
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/queue.h"
#include "base/workers.h"
#include "engine/batch_builder.h"
#include "engine/beams.h"
#include "engine/drafts.h"
#include "engine/request.h"
#include "engine/saved_prefix.h"
#include "engine/scheduler.h"
#include "model/program/runner.h"

namespace ingot {

// Figures of one step, for --trace and the metrics.
struct StepStats {
  int64_t index = 0;
  // The ends of the step's parts, in order. If steps overlap, parts of other steps run between submitted and sampled.
  Clock::time_point begin{}, planned{}, filled{}, submitted{}, waiting{}, sampled{}, emitted{};
  double mask_ms = 0;  // host time for the masks of constrained sequences, while the forward pass ran
  int n_tokens = 0;
  int n_seqs = 0;
  int n_decodes = 0;
  int n_preempted = 0;
  int n_cached = 0;   // tokens found in the prefix cache by sequences admitted in this step
  int n_emitted = 0;  // tokens delivered to consumers
  int n_forced = 0;   // part of n_emitted: forced by a grammar, so not sampled
  int n_running = 0;  // from here to states_cached: values when the forward pass begins
  int n_waiting = 0;
  int blocks_used = 0;
  int blocks_cached = 0;
  int states_used = 0;
  int states_cached = 0;
  bool failed = false;
  bool overlapped = false;
};

struct EngineGauges : DraftCounts {
  int n_running = 0;
  int n_waiting = 0;
  int n_paused = 0;
  int blocks_used = 0;    // held by sequences
  int blocks_cached = 0;  // held by no sequence but cached for their prefixes; the rest are free
  int n_blocks = 0;
  int block_size = 0;   // tokens
  int states_used = 0;  // slots for the states of recurrent layers, counted like the blocks
  int states_cached = 0;
  int n_states = 0;
  // Counts since the start:
  int64_t n_steps = 0;
  int64_t n_failed_steps = 0;
  int64_t n_preemptions = 0;
  int64_t n_blocks_released = 0;  // by running sequences, because the blocks were before the model's window
  int64_t n_finished = 0;
  int64_t n_finished_by[kFinishReasons] = {};  // indexed by FinishReason
  int64_t n_computed_tokens = 0;               // computed by steps: prompts, recomputed tokens and decoded tokens
  int64_t n_prompt_tokens = 0;                 // of requests that have started
  int64_t n_cached_tokens = 0;                 // part of n_prompt_tokens: found in the prefix cache
  int64_t n_output_tokens = 0;
  int64_t n_forced_tokens = 0;    // part of n_output_tokens: forced by a grammar, so not sampled
  Clock::time_point last_step{};  // when the last step was complete
  // For a watchdog, values of this moment: whether the engine's thread has work, and a number that changes while a step
  // proceeds or ends.
  bool is_working = false;
  uint64_t progress = 0;
};

struct EngineOptions {
  int chunk = 0;  // tokens of one prompt in one step, at most the runner's batch; 0: the whole batch
  std::function<void(const StepStats&)> on_step = {};  // called on the stepping thread
  bool prefix_cache = true;
  std::shared_ptr<CacheListener> cache_listener = {};
  bool draft_head = true;       // let the runner's draft head follow all steps; false: no request uses the head
  bool jump_ahead = true;       // turn text that a grammar forces into tokens without sampling each
  // More work for a constraint is done on workers. run_slow: runs a job on another thread; empty: the engine's workers.
  Effort quick = kQuickEffort;
  std::function<void(std::function<void()> job)> run_slow = {};
  int max_queue = 0;            // the most requests that wait for their first step; 0: no limit
  std::optional<bool> overlap;  // empty: the runner decides; false: one step at a time, also with several stages
  Clock::time_point (*now)() = Clock::now;  // the time, for StepStats and for the number of drafts
};

class Engine {
 public:
  explicit Engine(Runner& runner, const EngineOptions& options = {});
  ~Engine();  // stops
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Any thread may call these functions. submit throws Error if the request can never run or if the engine has stopped.
  // try_submit throws the same errors, and returns nothing if the queue is full. cancel, pause and resume take effect
  // before the next step. They do nothing to a finished request. Pause a request while its reader does not read: a
  // paused request keeps its place in the queue, but no step computes its tokens.
  RequestId submit(Request request);
  std::optional<RequestId> try_submit(Request request);
  void cancel(RequestId id);
  void pause(RequestId id);
  void resume(RequestId id);
  EngineGauges gauges() const;
  std::string fault() const;  // why the engine ended itself and all its requests; empty while the engine works
  bool lost_device() const;   // whether a lost device (DeviceLost) was the reason
  const RunnerInfo& info() const { return runner_.info(); }

  // Any thread may call these functions too. The engine does the work before the next step, so a call should copy about
  // a piece (blocks_of_piece). The futures throw Error if the call fails, and std::future_error if the engine has
  // ended. The arguments of a call must live until its future is ready.
  //
  // To save a history: find_prefix says what the cache has of it, read_prefix reads full blocks of a pool from the
  // first-th on, and drop_prefix ends the copy. To restore one: hold_prefix takes blocks, write_prefix fills them
  // (`first` counts from n_missing), and keep_prefix caches the history; or drop_prefix gives the blocks back.
  // erase_prefix erases the cached part of a history and returns the number of erased tokens.
  std::future<CachedPrefix> find_prefix(const CacheKey& root, std::vector<int32_t> tokens);
  std::future<void> read_prefix(const CachedPrefix& prefix, int pool, int first, std::span<uint8_t> to);
  std::future<std::shared_ptr<HeldBlocks>> hold_prefix(const CacheKey& root, std::vector<int32_t> tokens,
                                                       std::vector<int> n_missing /* of each pool */);
  std::future<void> write_prefix(const std::shared_ptr<HeldBlocks>& held, int pool, int first,
                                 std::span<const uint8_t> from);
  std::future<void> keep_prefix(const std::shared_ptr<HeldBlocks>& held);
  void drop_prefix(const std::shared_ptr<HeldBlocks>& held) noexcept;
  std::future<int> erase_prefix(const CacheKey& root, std::vector<int32_t> tokens);
  PrefixLayout prefix_layout() const;

  void start();  // runs steps on the engine's own thread until stop()
  void stop();   // cancels all remaining requests; the engine cannot be started again

  // Only without start(): receives the submitted requests and runs one step. Returns false if there was nothing to do.
  // While all sequences wait for masks, returns true without a step.
  // Throws DeviceLost.
  bool step();
  // Only without start(): runs a prompt and a decode step, to load code and weights, and drops their output. On an
  // asynchronous device, runs steps with drafts too. Throws Error if a step fails.
  void warm_up();

 private:
  enum class Order : uint8_t { kSubmit, kCancel, kPause, kResume, kCall };
  struct Message {
    Order order;
    std::unique_ptr<Sequence> sequence;  // for kSubmit
    RequestId id = 0;                    // for kCancel, kPause and kResume
    std::function<void()> call = {};     // for kCall
  };
  // A step in flight: planned but not complete.
  struct InFlightStep {
    const Step* step = nullptr;  // null: none
    BatchBuilder* builder = nullptr;
    std::string fault = {};  // of the forward pass or of sampling; empty: none
    explicit operator bool() const { return step != nullptr; }
    StepStats stats;
    DraftedStep drafts;
  };

  template <class F>
  auto call(F function);
  void check_saves() const;
  CachedPrefix cached_prefix(const CacheMatch& match, std::span<const int32_t> tokens,
                             const std::shared_ptr<HeldBlocks>& held);
  RequestId push(Request request);
  std::unique_ptr<Sequence> make_sequence(Request request);
  void run();
  bool receive(bool block);
  void handle(Message& message);
  void admit(std::unique_ptr<Sequence> sequence);
  void end_late_requests();
  void run_step();
  InFlightStep plan();
  void forward(InFlightStep& next);
  void take_figures(StepStats& stats, const Step& step) const;
  void sample(InFlightStep& next);
  bool is_full() const { return std::ssize(in_flight_) + 1 >= depth_; }
  void complete(const InFlightStep& done);
  void complete_oldest();
  void complete_failed(const InFlightStep& failed);
  void complete_item(const StepItem& item, std::span<const Sampled> drawn, const DraftedStep& drafts);
  void fail_item(const StepItem& item, const std::string& fault);
  void emit_progress(const Sequence& sequence);
  void emit_scores(const StepItem& item, std::span<const Sampled> scored);
  void emit_logits(const Step& step);
  void emit_tokens(Sequence& sequence, std::span<const Sampled> drawn);
  bool emit_next(Sequence& sequence, const Sampled& sampled, bool is_first);
  void emit_token(Sequence& sequence, const Sampled& sampled);
  void make_masks(InFlightStep& in_flight);
  void make_masks(Sequence& sequence, int n_drafts);
  template <class F>
  auto quickly(F call);
  static bool reads_here(const Sequence& sequence);
  bool read_token(Sequence& sequence, int32_t token);
  bool ends_here(Sequence& sequence);
  std::vector<int32_t> forced_tokens(Sequence& sequence, std::span<const int32_t> output);
  void cut_drafts(Sequence& sequence);
  void ask_worker(Sequence& sequence, bool wants_forced, std::span<const Sampled> drawn = {});
  void receive_next(RequestId id, NextTokens next);
  bool emit_known(Sequence& sequence, const Sampled& sampled);
  void go_on(Sequence& sequence);
  void run_on_worker(std::function<void()> job);
  void take_candidates(Sequence& sequence, const Sampled& ranked);
  void choose_beams(BeamGroup& group);
  void spread_beams(BeamGroup& group, std::span<const BeamSearch::Beam> next);
  Sequence& further_beam(BeamGroup& group);
  void finish_beams(BeamGroup& group, FinishReason reason, const std::string& error);
  void count_end(const Sequence& sequence, FinishReason reason);
  std::unique_ptr<Sequence> retire(Sequence& sequence);
  void finish(Sequence& sequence, FinishReason reason, const std::string& error = "", int32_t stop_token = -1);
  std::unique_ptr<Sequence> destroy(Sequence& sequence);
  void cancel_all();
  void die(const char* why, bool lost_device = false);
  void publish();
  bool has_draft_head() const { return options_.draft_head && runner_.info().draft_head != DraftHeadKind::kNone; }
  // Without a message, no step can be planned.
  bool idle() const { return (scheduler_.idle() || needs_message_) && in_flight_.empty(); }

  Runner& runner_;
  const EngineOptions options_;
  const int depth_;  // the most steps in flight; 1: steps do not overlap
  Queue<Message> inbox_;
  std::atomic<RequestId> next_id_{1};
  std::atomic<int> n_queued_{0};  // requests submitted that have neither started nor finished

  // Only the stepping thread uses the members from here to counts_.
  Scheduler scheduler_;
  std::vector<BatchBuilder> builders_;  // [depth_], used in turn
  size_t next_builder_ = 0;
  std::vector<InFlightStep> in_flight_;  // the oldest first; has room for all, because a step has no way to fail there
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  bool needs_message_ = false;
  Clock::duration mask_time_{};                              // spent on constraints since the step was planned
  Clock::time_point next_limit_ = Clock::time_point::max();  // the earliest of all deadlines
  EngineGauges counts_;
  Drafts drafts_;

  std::atomic<bool> is_stopping_{false};  // workers then drop their jobs
  std::unique_ptr<Workers> workers_;      // null: no constraint was slow yet

  std::atomic<bool> is_working_{false};
  mutable std::mutex gauges_mutex_;
  EngineGauges gauges_;
  std::string fault_;
  bool lost_device_ = false;
  std::thread thread_;
};

}  // namespace ingot
