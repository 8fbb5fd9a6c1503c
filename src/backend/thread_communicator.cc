#include "backend/thread_communicator.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/device_lost.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kSpin{50};  // longer than the usual delay between the ranks of a step

}  // namespace

ThreadRanks::ThreadRanks(int n, std::chrono::milliseconds limit) : limit_(limit), places_(static_cast<size_t>(n)) {
  CHECK_GT(n, 0);
}

void ThreadRanks::throw_fault() {
  if (has_fault_) std::rethrow_exception(fault_);
}

std::string ThreadRanks::missing() const {
  std::string names;
  for (int r = 0; r < size(); ++r)
    if (!places_[static_cast<size_t>(r)].is_here) names += (names.empty() ? "" : ", ") + rank_name(r, size());
  return names;
}

void ThreadRanks::meet(int rank, bool limited) {
  const uint64_t meeting = n_meetings_.load();  // cannot end without this rank
  {
    const std::lock_guard lock(mutex_);
    throw_fault();
    places_[static_cast<size_t>(rank)].is_here = true;
    if (++n_here_ == size()) {
      n_here_ = 0;
      for (Place& place : places_) place.is_here = false;
      n_meetings_.store(meeting + 1);
      changed_.notify_all();
      return;
    }
  }
  const auto has_ended = [&] { return n_meetings_.load() != meeting; };
  const auto begun = Clock::now();
  while (!has_ended() && !has_fault_.load() && Clock::now() < begun + kSpin) {}
  if (has_ended()) return;
  std::unique_lock lock(mutex_);
  const auto wakes = [&] { return has_ended() || has_fault_.load(); };
  if (!limited) {
    changed_.wait(lock, wakes);
  } else if (!changed_.wait_until(lock, begun + limit_, wakes)) {
    fault_ = std::make_exception_ptr(DeviceLost("{} has not answered for {} s: it hangs, so the model ends", missing(),
                                                static_cast<double>(limit_.count()) / 1000));
    has_fault_ = true;
    changed_.notify_all();
  }
  if (!has_ended()) throw_fault();
}

void ThreadRanks::abort(std::exception_ptr fault) {
  const std::lock_guard lock(mutex_);
  if (has_fault_) return;
  fault_ = std::move(fault);
  has_fault_ = true;
  changed_.notify_all();
}

void ThreadRanks::pass(const Path& path, std::span<const uint8_t> message) {
  const std::lock_guard lock(mutex_);
  throw_fault();
  passed_[path].emplace_back(message.begin(), message.end());
  changed_.notify_all();
}

void ThreadRanks::take(const Path& path, std::span<uint8_t> message) {
  std::unique_lock lock(mutex_);
  auto& waiting = passed_[path];
  changed_.wait(lock, [&] { return has_fault_.load() || !waiting.empty(); });
  throw_fault();
  CHECK_EQ(waiting.front().size(), message.size());
  std::ranges::copy(waiting.front(), message.begin());
  waiting.pop_front();
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadRanks> ranks, int rank) : ranks_(std::move(ranks)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return ranks_->size(); }

  // Each rank sums a part of the numbers, and writes the sums to the buffers of all ranks.
  void all_reduce(float* x, int64_t n) override {
    show(x, static_cast<size_t>(n) * sizeof(float), true);
    const int64_t begin = n * rank_ / size(), end = n * (rank_ + 1) / size();
    const auto of = [&](int r) { return static_cast<float*>(const_cast<void*>(ranks_->places_[r].data)); };
    float* sum = of(0);
    for (int r = 1; r < size(); ++r)
      for (int64_t i = begin; i < end; ++i) sum[i] += of(r)[i];
    for (int r = 1; r < size(); ++r) std::copy(sum + begin, sum + end, of(r) + begin);
    ranks_->meet(rank_, true);
  }

  void all_gather(void* all, const void* own, size_t n_bytes) override { gather(all, own, n_bytes, true); }
  void exchange(void* all, const void* own, size_t n_bytes) override { gather(all, own, n_bytes, false); }

  void send(std::span<const uint8_t> message) override {
    CHECK_EQ(rank_, 0);
    show(message.data(), message.size(), true);
    ranks_->meet(rank_, true);
  }

  std::vector<uint8_t> receive() override {
    CHECK_NE(rank_, 0);
    show(nullptr, 0, false);
    const auto* bytes = static_cast<const uint8_t*>(ranks_->places_[0].data);
    std::vector<uint8_t> message(bytes, bytes + ranks_->places_[0].n_bytes);
    ranks_->meet(rank_, true);
    return message;
  }

  // The first rank of each group makes the group's meeting place, and the others copy the pointer.
  std::unique_ptr<Communicator> group(int n) override {
    CHECK_EQ(size() % n, 0);
    std::shared_ptr<ThreadRanks> place;
    if (rank_ % n == 0) place = std::make_shared<ThreadRanks>(n, limit());
    const std::shared_ptr<ThreadRanks>* own = &place;
    std::vector<const std::shared_ptr<ThreadRanks>*> all(static_cast<size_t>(size()));
    exchange(all.data(), &own, sizeof(own));
    const auto shared = *all[static_cast<size_t>(rank_ / n * n)];
    ranks_->meet(rank_, false);  // each rank has copied its pointer
    return ThreadRanks::communicator(shared, rank_ % n);
  }

  void pass(int to, int channel, std::span<const uint8_t> message) override {
    ranks_->pass({rank_, to, channel}, message);
  }
  void take(int from, int channel, std::span<uint8_t> message) override {
    ranks_->take({from, rank_, channel}, message);
  }

  void abort(std::exception_ptr fault) override { ranks_->abort(std::move(fault)); }
  void check() override {
    if (!ranks_->has_fault_.load()) return;
    const std::lock_guard lock(ranks_->mutex_);
    ranks_->throw_fault();
  }
  std::chrono::milliseconds limit() const override { return ranks_->limit_; }

 private:
  // Shows data to the other ranks, which may use the data until the next meeting.
  void show(const void* data, size_t n_bytes, bool limited) {
    ranks_->places_[rank_].data = data, ranks_->places_[rank_].n_bytes = n_bytes;
    ranks_->meet(rank_, limited);
  }

  void gather(void* all, const void* own, size_t n_bytes, bool limited) {
    show(own, n_bytes, limited);
    for (int r = 0; r < size(); ++r) {
      CHECK_EQ(ranks_->places_[r].n_bytes, n_bytes);
      std::memcpy(static_cast<char*>(all) + static_cast<size_t>(r) * n_bytes, ranks_->places_[r].data, n_bytes);
    }
    ranks_->meet(rank_, limited);
  }

  const std::shared_ptr<ThreadRanks> ranks_;
  const int rank_;
};

std::unique_ptr<Communicator> ThreadRanks::communicator(std::shared_ptr<ThreadRanks> ranks, int rank) {
  CHECK_LT(rank, ranks->size());
  return std::make_unique<ThreadCommunicator>(std::move(ranks), rank);
}

}  // namespace ingot
