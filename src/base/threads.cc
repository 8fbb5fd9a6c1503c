#include "base/threads.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/control_group.h"
#include "base/error.h"
#include "base/log.h"
#include "base/numa.h"
#include "base/spin.h"
#include "base/system.h"

namespace ingot {
namespace {

constexpr std::chrono::microseconds kSpin{60};

// Returns true as soon as done() is true, false when done() is still false after kSpin.
template <class Done>
bool spin_until(Done&& done) {
  for (int i = 0; i < 64; ++i) {
    if (done()) return true;
    spin_pause();
  }
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      spin_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace

int available_cpus() {
  static const int n_cpus = [] {
    const int allowed = cpus_by_affinity();
    const int by_affinity = allowed > 0 ? allowed : static_cast<int>(std::thread::hardware_concurrency());
    return std::max(1, static_cast<int>(std::min<double>(by_affinity, std::ceil(read_control_group().n_cpus))));
  }();
  return n_cpus;
}

int default_threads() {
  static const int n_cores = allowed_cores();
  return n_cores > 0 ? std::min(available_cpus(), n_cores) : available_cpus();
}

ThreadPool::ThreadPool(int n_threads, const ThreadStarter& start, std::vector<MemoryNode> nodes)
    : nodes_(std::move(nodes)) {
  if (n_threads < 0 || n_threads > kMaxThreads)
    throw Error("{} threads to compute with: the number must be from 0 to {}", n_threads, kMaxThreads);
  const int all = std::min(default_threads(), kMaxThreads),
            usual = nodes_.empty() ? all : std::min(all, cores_of(nodes_));
  const int n = n_threads > 0 ? n_threads : usual;
  n_used_ = static_cast<uint32_t>(n);
  workers_ = start_workers(
      n - 1, "the thread pool", [this](int i) { work(i + 1); }, start);  // thread 0 is the caller
  n_used_ = static_cast<uint32_t>(size());  // the system may have refused some
  shares_ = TaskShares(size(), nodes_.empty());  // memory of nodes is placed for equal shares
  if (!nodes_.empty()) on_each_thread([this](int thread) { bind(thread); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  n_used_ = UINT32_MAX;
  wake_all(n_used_);
  epoch_.fetch_add(2);
  wake_all(epoch_);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::use(int n) {
  CHECK(n >= 1 && n <= size());
  if (n == n_used()) return;
  shares_.use(n);
  n_used_ = static_cast<uint32_t>(n);
  wake_all(n_used_);
}

void ThreadPool::bind(int thread) {
  const MemoryNode& node = node_of(thread, size(), nodes_);
  if (thread == 0) caller_ = std::this_thread::get_id();
  if (run_on_cpus(node.cpus)) return;
  const int code = errno;
  log_warn("the thread pool: thread {} cannot be bound to memory node {}: {}; continuing without it", thread, node.id,
           std::generic_category().message(code));
}

void ThreadPool::take_tasks(int thread) {
  int n_empty = 0;
  for (int64_t task; (task = shares_.take(thread, n_empty)) >= 0;) call_(context_, task, thread);
}

// Safety depends on the order of the atomic operations, all of them seq_cst: a worker changes entered_ and then reads
// epoch_; run() changes epoch_ and then reads entered_. So a worker that saw the job open is counted before the job is
// closed, and run() waits for that worker. Any other worker leaves without reading the job.
void ThreadPool::run(int64_t n_tasks, bool equal_tasks, Call call, void* context) {
  if (!nodes_.empty() && caller_ != std::this_thread::get_id()) bind(0);  // not the thread bound as thread 0
  call_ = call;
  context_ = context;
  shares_.deal(n_tasks, equal_tasks);
  epoch_.fetch_add(1);
  wake_all(epoch_);
  take_tasks(0);
  epoch_.fetch_add(1);
  const auto all_left = [this] { return entered_.load() == 0; };
  while (!spin_until(all_left)) {
    const uint32_t entered = entered_.load();
    if (entered != 0) wait_while(entered_, entered);
  }
}

void ThreadPool::wait_for_job(int thread, uint32_t seen) {
  for (uint32_t used; (used = n_used_.load()) <= static_cast<uint32_t>(thread);) wait_while(n_used_, used);
  // stop_ is checked separately, because a worker that left a job late may already have seen the destructor's epoch.
  const auto is_new = [&] {
    const uint32_t epoch = epoch_.load();
    return stop_.load() || (epoch != seen && epoch % 2 == 1);
  };
  while (!spin_until(is_new)) {
    // Sleep while the last job seen is being closed, but wake up when the next job opens.
    const uint32_t now = epoch_.load();
    if (now == seen || now % 2 == 0) {
      if (!stop_.load()) wait_while(epoch_, now);
    }
  }
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  while (true) {
    wait_for_job(thread, seen);
    if (stop_.load()) return;
    entered_.fetch_add(1);
    const uint32_t epoch = epoch_.load();
    if (epoch % 2 == 1) take_tasks(thread);
    seen = epoch;
    if (entered_.fetch_sub(1) == 1) wake_one(entered_);
  }
}

}  // namespace ingot
