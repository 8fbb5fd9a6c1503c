#include "server/models/embed_queue.h"

#include <algorithm>

#include "base/check.h"
#include "base/device_lost.h"
#include "base/thread_start.h"

namespace ingot {

EmbedQueue::EmbedQueue(Compute compute, int width, const Limits& limits)
    : compute_(std::move(compute)), width_(static_cast<size_t>(width)), limits_(limits) {}

void EmbedQueue::start() {
  thread_ = start_thread("the thread that embeds", [this] { return std::thread([this] { run(); }); });
}

uint64_t EmbedQueue::submit(std::vector<EmbedText> texts, Done done) {
  CHECK(!texts.empty());
  auto job = std::make_shared<Job>();
  job->texts = std::move(texts);
  job->done = std::move(done);
  job->result.rows.resize(job->texts.size() * width_);
  std::string why;
  {
    std::lock_guard lock(mutex_);
    job->id = next_id_++;
    why = fault_.empty() ? "the server is shutting down" : fault_;
    if (!stop_) {
      waiting_.push_back(job);
      gauges_.n_waiting += static_cast<int>(job->texts.size());
      changed_.notify_all();
      return job->id;
    }
  }
  fail(*job, why);
  return job->id;
}

void EmbedQueue::cancel(uint64_t id) {
  std::shared_ptr<Job> job;  // destroyed without the lock, because its callback may own large objects
  std::lock_guard lock(mutex_);
  const auto is_it = [id](const auto& one) { return one->id == id; };
  const auto found = std::ranges::find_if(waiting_, is_it);
  if (found != waiting_.end()) {
    job = *found;
    gauges_.n_waiting -= static_cast<int>(job->texts.size() - job->n_taken);
    waiting_.erase(found);
  }
  const auto computing = std::ranges::find_if(computing_, is_it);
  if (computing != computing_.end()) job = *computing;
  if (job) job->over = true;
}

EngineGauges EmbedQueue::gauges() const {
  std::lock_guard lock(mutex_);
  EngineGauges gauges = gauges_;
  gauges.is_working = gauges.n_running > 0;
  gauges.progress = static_cast<uint64_t>(gauges.n_steps);
  return gauges;
}

void EmbedQueue::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  fail_waiting("the server is shutting down");
}

void EmbedQueue::fail_waiting(const std::string& why) {
  std::deque<std::shared_ptr<Job>> left;
  {
    std::lock_guard lock(mutex_);
    left.swap(waiting_);
    gauges_.n_waiting = 0;
  }
  for (const auto& job : left)
    if (!job->over) fail(*job, why);
}

std::string EmbedQueue::fault() const {
  std::lock_guard lock(mutex_);
  return fault_;
}

void EmbedQueue::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
      if (stop_) return;
    }
    try {
      step();
    } catch (const DeviceLost& error) {
      {
        std::lock_guard lock(mutex_);
        fault_ = error.what();
        stop_ = true;
      }
      fail_computing(error.what());
      return fail_waiting(error.what());
    } catch (const std::bad_alloc&) {  // fails the requests of the batch
      fail_computing(kOutOfMemory);
    } catch (const std::exception& error) {
      fail_computing(error.what());
    }
  }
}

void EmbedQueue::step() {
  std::vector<EmbedText> texts;
  std::vector<Place> places;
  std::vector<std::shared_ptr<Job>> late;
  {
    std::lock_guard lock(mutex_);
    late = take_late();
    places = take_batch(texts);
  }
  for (const auto& job : late) {
    job->result.too_late = true;
    fail(*job, "the request has waited too long for its turn; try again soon");
  }
  if (places.empty()) return;
  const std::vector<float> rows = compute_(std::move(texts));
  CHECK_EQ(rows.size(), places.size() * width_);
  deliver(places, rows);
}

// Removes and returns the requests that have waited too long and have no text in a batch yet.
std::vector<std::shared_ptr<EmbedQueue::Job>> EmbedQueue::take_late() {
  const auto before = Clock::now() - limits_.patience;
  std::vector<std::shared_ptr<Job>> late;
  std::erase_if(waiting_, [&](const auto& job) {
    if (job->n_taken > 0 || job->submitted > before) return false;
    late.push_back(job);
    gauges_.n_waiting -= static_cast<int>(job->texts.size());
    return true;
  });
  return late;
}

// Takes one text of each request in turn, until a text does not fit. That text's request is the first of the next
// batch.
std::vector<EmbedQueue::Place> EmbedQueue::take_batch(std::vector<EmbedText>& texts) {
  std::vector<Place> places;
  size_t n_tokens = 0;
  while (!waiting_.empty() && places.size() < limits_.batch_texts) {
    const std::shared_ptr<Job> job = waiting_.front();
    EmbedText& text = job->texts[job->n_taken];
    if (!places.empty() && n_tokens + text.tokens.size() > limits_.batch_tokens) break;
    n_tokens += text.tokens.size();
    if (job->n_taken == 0) job->begun = Clock::now();
    if (std::ranges::find(computing_, job) == computing_.end()) computing_.push_back(job);
    places.push_back({job, job->n_taken++});
    texts.push_back(std::move(text));
    waiting_.pop_front();
    if (job->n_taken < job->texts.size()) waiting_.push_back(job);
  }
  gauges_.n_waiting -= static_cast<int>(places.size());
  gauges_.n_running = static_cast<int>(places.size());
  gauges_.n_prompt_tokens += static_cast<int64_t>(n_tokens);
  return places;
}

void EmbedQueue::deliver(const std::vector<Place>& places, const std::vector<float>& rows) {
  std::vector<std::shared_ptr<Job>> over, released;  // called and destroyed without the lock
  over.reserve(places.size());
  {
    std::lock_guard lock(mutex_);
    gauges_.n_running = 0;
    ++gauges_.n_steps;
    released.swap(computing_);
    for (size_t i = 0; i < places.size(); ++i) {
      Job& job = *places[i].job;
      if (job.over) continue;
      const auto row = rows.begin() + static_cast<ptrdiff_t>(i * width_);
      std::copy(row, row + static_cast<ptrdiff_t>(width_),
                job.result.rows.begin() + static_cast<ptrdiff_t>(places[i].text * width_));
      if (++job.n_computed < job.texts.size()) continue;
      job.over = true;
      over.push_back(places[i].job);
    }
  }
  for (const auto& job : over) {
    job->result.queue_s = std::chrono::duration<double>(job->begun - job->submitted).count();
    job->result.compute_s = std::chrono::duration<double>(Clock::now() - job->begun).count();
    job->done(std::move(job->result));
  }
}

// Fails every request that had a text in the failed batch.
void EmbedQueue::fail_computing(const std::string& why) {
  std::vector<std::shared_ptr<Job>> failed;
  {
    std::lock_guard lock(mutex_);
    gauges_.n_running = 0;
    ++gauges_.n_steps;
    ++gauges_.n_failed_steps;
    failed.swap(computing_);
    std::erase_if(failed, [](const auto& job) { return std::exchange(job->over, true); });
    std::erase_if(waiting_, [&](const auto& job) {
      if (!job->over) return false;
      gauges_.n_waiting -= static_cast<int>(job->texts.size() - job->n_taken);
      return true;
    });
  }
  for (const auto& job : failed) fail(*job, why);
}

void EmbedQueue::fail(Job& job, const std::string& failure) {
  try {
    job.result.rows.clear();
    job.result.failure = failure;
    job.done(std::move(job.result));
  } catch (const std::exception&) {  // no memory: the destroyed responder answers
  }
}

}  // namespace ingot
