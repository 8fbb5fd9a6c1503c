// MemoryBudget: bounds the memory that clients can make the server take, for connections, bodies, parsed requests and
// answers together. Every such object owns a Part and sets the part to the object's size before it grows. Any thread
// may use a budget. One thread at a time may use a Part.
#pragma once
#include <atomic>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

namespace ingot {

class MemoryBudget {
 public:
  explicit MemoryBudget(size_t limit = std::numeric_limits<size_t>::max()) : limit_(limit) {}

  size_t limit() const { return limit_; }
  void set_limit(size_t limit) { limit_ = limit; }
  size_t used() const { return used_; }
  // The bytes that parts have given back since the last call.
  size_t take_given_back() { return given_back_.exchange(0); }

  // Requests leave an eighth of the budget to connections, so that the server can answer /health while requests use all
  // of their share.
  enum class Use : unsigned char { kRequest, kConnection };

  // Some bytes of a budget, given back when the object is destroyed. A part of no budget has room for everything.
  class Part {
   public:
    Part() = default;
    explicit Part(std::shared_ptr<MemoryBudget> budget, Use use = Use::kRequest)
        : budget_(std::move(budget)), use_(use) {}
    Part(Part&& other) noexcept
        : budget_(std::move(other.budget_)), use_(other.use_), bytes_(std::exchange(other.bytes_, 0)) {}
    Part& operator=(Part&&) = delete;
    ~Part() { set(0); }

    size_t bytes() const { return bytes_; }
    size_t limit() const { return budget_ ? budget_->limit_for(use_) : std::numeric_limits<size_t>::max(); }
    // Returns false, and changes nothing, if the budget has no room.
    bool set(size_t bytes) noexcept {
      if (budget_ && !budget_->change(bytes_, bytes, use_)) return false;
      bytes_ = bytes;
      return true;
    }

   private:
    std::shared_ptr<MemoryBudget> budget_;
    Use use_ = Use::kRequest;
    size_t bytes_ = 0;
  };

 private:
  size_t limit_for(Use use) const {
    const size_t limit = limit_;
    return use == Use::kConnection ? limit : limit - limit / 8;
  }
  bool change(size_t from, size_t to, Use use) {
    if (to <= from) {
      used_ -= from - to;
      given_back_ += from - to;
      return true;
    }
    const size_t limit = limit_for(use), more = to - from;
    for (size_t used = used_; more <= limit && used <= limit - more;)
      if (used_.compare_exchange_weak(used, used + more)) return true;
    return false;
  }

  std::atomic<size_t> limit_, used_{0}, given_back_{0};
};

}  // namespace ingot
