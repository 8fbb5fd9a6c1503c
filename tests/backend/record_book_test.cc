// Which steps a backend records and replays, and when it frees records (RecordBook). Needs no GPU: records are numbers,
// and the device is a queue.
#include "backend/cuda/recorded/record_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>

#include "base/error.h"
#include "captured_log.h"
#include "test_seed.h"

namespace ingot::cuda {
namespace {

// The work of a device: launches of records, in order. The first n_done of them have ended.
struct WorkQueue {
  std::vector<int> launched;
  size_t n_done = 0;
  std::set<int> live;
  int n_made = 0;

  bool uses(int record) const { return std::find(launched.begin() + n_done, launched.end(), record) != launched.end(); }
  void advance(size_t n) { n_done = std::min(launched.size(), n_done + n); }
};
WorkQueue* work_queue = nullptr;  // of the running test

class NumberRecord {
 public:
  NumberRecord() : number_(work_queue->n_made++) { work_queue->live.insert(number_); }
  NumberRecord(NumberRecord&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  NumberRecord& operator=(NumberRecord&&) = delete;
  ~NumberRecord() {
    if (number_ < 0) return;
    EXPECT_FALSE(work_queue->uses(number_)) << "record " << number_ << " is freed while it runs";
    work_queue->live.erase(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

class QueueMark {
 public:
  bool has_passed() const { return work_queue->n_done >= place_; }

 private:
  size_t place_ = work_queue->launched.size();
};

class RecordBooks : public testing::Test {
 protected:
  RecordBooks() { work_queue = &queue_; }
  ~RecordBooks() override {
    queue_.advance(queue_.launched.size());
    book_.clear();
    EXPECT_TRUE(queue_.live.empty());
    work_queue = nullptr;
  }

  void empty_book() {
    queue_.advance(queue_.launched.size());
    book_.clear();
  }

  // A step with this key. Returns whether it was replayed.
  bool step(int key, bool recording_fails, bool has_room = true) {
    int n_plain = 0, n_replays = 0;
    book_.step(
        key,
        [&] {
          ++n_plain;
          if (empties_book_) empty_book();
        },
        [&](const NumberRecord& record) {
          ++n_replays;
          EXPECT_TRUE(queue_.live.contains(record.number()));
          queue_.launched.push_back(record.number());
          if (empties_book_) empty_book();
        },
        [&] { return has_room; },
        [&] {
          ++n_attempts_[key];
          if (recording_fails) throw Error("no memory for record {}", key);
          return NumberRecord();
        });
    EXPECT_EQ(n_plain + n_replays, 1) << "a step runs once";
    return n_replays == 1;
  }

  WorkQueue queue_;
  RecordBook<int, NumberRecord, QueueMark> book_{[] { return QueueMark(); }};
  std::map<int, int> n_attempts_;
  bool empties_book_ = false;  // a step moves memory, so all records are dropped
};

TEST_F(RecordBooks, AStepIsReplayedFromTheSecondTimeOn) {
  EXPECT_FALSE(step(1, false));
  EXPECT_TRUE(step(1, false));
  EXPECT_FALSE(step(2, false, /*has_room=*/false));
  EXPECT_FALSE(step(2, false));
  EXPECT_TRUE(step(2, false));
  EXPECT_EQ(n_attempts_, (std::map<int, int>{{1, 1}, {2, 1}}));
}

TEST_F(RecordBooks, AStepMayEmptyTheBook) {
  const CapturedLog log;
  step(1, true);
  step(2, false);
  empties_book_ = true;
  EXPECT_FALSE(step(1, false));
  EXPECT_FALSE(step(3, false));
  book_.mark_stale();
  EXPECT_TRUE(step(3, false));
  EXPECT_TRUE(step(3, false)) << "a new record was made";
  EXPECT_FALSE(step(3, false));
}

TEST_F(RecordBooks, AFailedRecordingCostsOnlyTheRecord) {
  const CapturedLog log;
  for (int i = 0; i < 3; ++i)
    for (const int key : {1, 2, 3}) EXPECT_EQ(step(key, key != 2), key == 2 && i > 0) << key;
  EXPECT_EQ(n_attempts_, (std::map<int, int>{{1, 1}, {2, 1}, {3, 1}})) << "no key is tried again";
  EXPECT_EQ(std::ranges::count(log.text(), '\n'), 1) << log.text();
  EXPECT_NE(log.text().find("no memory for record 1"), std::string::npos) << log.text();
}

TEST_F(RecordBooks, ARecordStaysIfItsReplacementFails) {
  const CapturedLog log;
  step(1, false);
  book_.mark_stale();
  EXPECT_TRUE(step(1, true));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(step(1, true));
  EXPECT_EQ(n_attempts_[1], 2);
  EXPECT_EQ(book_.n_retired(), 0);
}

TEST_F(RecordBooks, ALostDeviceIsNoFailedRecording) {
  EXPECT_THROW(book_.record(1, []() -> NumberRecord { throw DeviceLost("the GPU is gone"); }), DeviceLost);
}

// Draws steps, faults, better kernels and the device's progress.
TEST_F(RecordBooks, ReplacedRecordsAreFreedWhenTheirStepsHaveEnded) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const CapturedLog log;
  std::set<int> recorded, failed;
  for (int i = 0; i < 3000 && !HasFailure(); ++i) {
    const int key = draw(6);
    const bool fails = draw(4) == 0, known = recorded.contains(key) || failed.contains(key);
    if (draw(10) == 0) queue_.advance(queue_.launched.size());
    const bool all_had_ended = queue_.n_done == queue_.launched.size();
    EXPECT_EQ(step(key, fails), recorded.contains(key));
    if (all_had_ended) {
      EXPECT_LE(book_.n_retired(), 1) << "more than this step has replaced";
    }
    if (!known) (fails ? failed : recorded).insert(key);
    EXPECT_EQ(queue_.live.size(), recorded.size() + book_.n_retired());
    if (draw(3) == 0) book_.mark_stale();
    queue_.advance(draw(3));
    if (draw(100) != 0) continue;
    queue_.advance(queue_.launched.size());
    book_.clear();
    recorded.clear(), failed.clear();
  }
}

}  // namespace
}  // namespace ingot::cuda
