// EmbedQueue: computes texts of many requests together. A batch is filled with one text of each request in turn. So
// many small requests share a step, and a large request does not delay the others. ServedModel creates the queue.
// Callbacks run on the queue's thread.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"

namespace ingot {

// The tokens of a text, or of a query followed by a document.
struct EmbedText {
  std::vector<int32_t> tokens;
  int second = -1;  // as in Embedder::Pair; for a single text: number of prompt tokens that the vector excludes
};

class EmbedQueue {
 public:
  // Returns [n_texts, width]. An exception fails the requests of that batch; DeviceLost fails all requests.
  using Compute = std::function<std::vector<float>(std::vector<EmbedText> texts)>;

  struct Result {
    std::vector<float> rows;  // [n_texts, width], in the order of the texts
    std::string failure;      // the reason for missing rows; empty: success
    bool too_late = false;    // the request failed because it waited too long; no text was computed
    double queue_s = 0, compute_s = 0;
  };
  using Done = std::function<void(Result result)>;  // called on the queue's thread: must return quickly

  struct Limits {
    size_t batch_tokens = 2048, batch_texts = 256;
    std::chrono::seconds patience{60};  // a request fails if no batch has one of its texts after this time
  };

  EmbedQueue(Compute compute, int width, const Limits& limits);
  ~EmbedQueue() { stop(); }
  EmbedQueue(const EmbedQueue&) = delete;
  EmbedQueue& operator=(const EmbedQueue&) = delete;

  // Any thread may call these functions. `done` is called once, unless the request is cancelled before.
  uint64_t submit(std::vector<EmbedText> texts, Done done);
  void cancel(uint64_t id);
  EngineGauges gauges() const;  // counts of texts
  std::string fault() const;    // the reason for a lost device; empty while the device works
  void start();
  void stop();  // fails all remaining requests

 private:
  struct Job {
    uint64_t id = 0;
    std::vector<EmbedText> texts;
    size_t n_taken = 0, n_computed = 0;
    Done done;
    Result result;
    Clock::time_point submitted = Clock::now(), begun{};
    bool over = false;  // failed or cancelled: results still in flight are dropped
  };
  struct Place {
    std::shared_ptr<Job> job;
    size_t text;
  };

  void run();
  void step();
  std::vector<std::shared_ptr<Job>> take_late();
  std::vector<Place> take_batch(std::vector<EmbedText>& texts);
  void deliver(const std::vector<Place>& places, const std::vector<float>& rows);
  void fail_computing(const std::string& why);
  void fail_waiting(const std::string& why);
  void fail(Job& job, const std::string& failure);

  const Compute compute_;
  const size_t width_;
  const Limits limits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> waiting_;     // jobs with texts that no batch has taken
  std::vector<std::shared_ptr<Job>> computing_;  // jobs with texts in the batch in flight
  EngineGauges gauges_;
  uint64_t next_id_ = 1;
  bool stop_ = false;
  std::string fault_;
  std::thread thread_;
};

}  // namespace ingot
