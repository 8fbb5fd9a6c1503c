// EmbedQueue: texts of many requests, computed together. A batch takes one text of each request in turn until it is
// full, so that many small requests share a step and a large one holds up nobody. Made by ServedModel; its thread calls
// back.
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

// The tokens of a text, or of a query and a document behind one another.
struct EmbedText {
  std::vector<int32_t> tokens;
  int second = -1;  // Embedder::Pair's; of a text how many tokens of a prompt its vector leaves out
};

class EmbedQueue {
 public:
  // [n_texts, width]; may throw, which costs the requests of that batch; DeviceLost costs all.
  using Compute = std::function<std::vector<float>(std::vector<EmbedText> texts)>;

  struct Result {
    std::vector<float> rows;  // [n_texts, width], in the order of the texts
    std::string failure;      // why there are none
    bool too_late = false;    // the failure: it has waited too long, and nothing of it was computed
    double queue_s = 0, compute_s = 0;
  };
  using Done = std::function<void(Result result)>;  // on the queue's thread: must return quickly

  struct Limits {
    size_t batch_tokens = 2048, batch_texts = 256;
    std::chrono::seconds patience{60};  // for a request's first text to be computed
  };

  EmbedQueue(Compute compute, int width, const Limits& limits);
  ~EmbedQueue() { stop(); }
  EmbedQueue(const EmbedQueue&) = delete;
  EmbedQueue& operator=(const EmbedQueue&) = delete;

  // Any thread. Calls back once, unless cancelled before.
  uint64_t submit(std::vector<EmbedText> texts, Done done);
  void cancel(uint64_t id);
  EngineGauges gauges() const;  // of texts
  std::string fault() const;    // of the device, which is lost; empty while it is well
  void start();
  void stop();  // what is left fails

 private:
  struct Job {
    uint64_t id = 0;
    std::vector<EmbedText> texts;
    size_t n_taken = 0, n_computed = 0;
    Done done;
    Result result;
    Clock::time_point submitted = Clock::now(), begun{};
    bool over = false;  // failed or cancelled: what is still computed of it is dropped
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
  std::deque<std::shared_ptr<Job>> waiting_;     // with texts that no batch has taken
  std::vector<std::shared_ptr<Job>> computing_;  // with texts in the batch under way
  EngineGauges gauges_;
  uint64_t next_id_ = 1;
  bool stop_ = false;
  std::string fault_;
  std::thread thread_;
};

}  // namespace ingot
