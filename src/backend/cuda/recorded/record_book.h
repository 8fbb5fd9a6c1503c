// RecordBook: the records of steps by key, whatever a record is (a CUDA graph: step_recorder.h). It decides which steps
// are replayed and which are recorded, and when a record is freed.
//
// A recording may fail, for example without memory. The step itself has run by then, so only the record is missing:
// from then on, steps with this key run without a record. The log says so once.
//
// A record that is replaced may still be running. It is freed after the work that was enqueued before its replacement.
#pragma once
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "base/device_lost.h"
#include "base/log.h"

namespace ingot::cuda {

// Record: frees itself. Mark: a place in the enqueued work; has_passed() says whether the work before it has ended.
template <class Key, class Record, class Mark>
class RecordBook {
 public:
  explicit RecordBook(std::function<Mark()> mark_now) : mark_now_(std::move(mark_now)) {}  // after the work so far

  bool contains(const Key& key) const { return entries_.contains(key); }  // or its recording has failed
  template <class Predicate>
  int count_if(Predicate&& predicate) const {
    int n = 0;
    for (const auto& [key, entry] : entries_) n += predicate(key);
    return n;
  }
  size_t n_retired() const { return retired_.size(); }

  // Calls replay(record) if the step has a record, else run_plainly(). make() returns a new record, of a step that has
  // run.
  template <class RunPlainly, class Replay, class HasRoom, class Make>
  void step(const Key& key, RunPlainly&& run_plainly, Replay&& replay, HasRoom&& has_room, Make&& make) {
    free_ended();
    const auto found = entries_.find(key);
    const bool is_known = found != entries_.end(), is_stale = is_known && found->second.is_stale;
    if (is_known && found->second.record) {
      replay(*found->second.record);
      if (is_stale) record(key, make);
    } else {
      run_plainly();  // it may move memory, and then the book is empty
      if (!is_known && has_room()) record(key, make);
    }
  }

  // Returns false if make() fails. Throws only DeviceLost.
  template <class Make>
  bool record(const Key& key, Make&& make) {
    try {
      Entry& entry = entries_[key];
      entry.is_stale = false;
      Record made = make();
      if (entry.record) retired_.push_back({std::move(*entry.record), mark_now_()});
      entry.record.emplace(std::move(made));
      return true;
    } catch (const DeviceLost&) {
      throw;
    } catch (const std::exception& error) {
      if (!std::exchange(has_complained_, true))
        log_warn("a step could not be recorded, so such steps are launched op by op and take longer: {}", error.what());
      return false;
    }
  }

  // Records are correct, but better ones can be made by now.
  void mark_stale() {
    for (auto& [key, entry] : entries_) entry.is_stale = true;
  }
  bool is_empty() const { return entries_.empty() && retired_.empty(); }
  void clear() { entries_.clear(), retired_.clear(); }  // after all enqueued work

 private:
  struct Entry {
    std::optional<Record> record;  // nothing: the recording has failed
    bool is_stale = false;
  };
  struct Retired {
    Record record;
    Mark mark;
  };

  void free_ended() {
    while (!retired_.empty() && retired_.front().mark.has_passed()) retired_.pop_front();
  }

  const std::function<Mark()> mark_now_;
  std::map<Key, Entry> entries_;
  std::deque<Retired> retired_;
  bool has_complained_ = false;
};

}  // namespace ingot::cuda
