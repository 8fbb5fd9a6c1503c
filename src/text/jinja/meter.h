// Meter: counts down the steps that a rendering may still use. Each evaluated node and each 32 bytes read or written
// cost one step; each new list item costs four steps. No string may grow over the output limit. Checks come before the
// work, so a hostile template fails early.
#pragma once
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/jinja/template.h"

namespace ingot::jinja {

class Meter {
 public:
  Meter(const TemplateLimits& limits, size_t input_bytes)
      : left_(limits.fuel + limits.fuel_per_byte * input_bytes),
        max_bytes_(limits.output_bytes),
        max_depth_(limits.depth) {}

  void spend(size_t n = 1) {
    if (n > left_) throw Error("the template needs too many steps (over its limit)");
    left_ -= n;
  }
  // Charges for work on n existing bytes.
  void read(size_t n) { spend(1 + n / 32); }
  // Checks that a string may grow to n bytes.
  void fits(size_t n) const {
    if (n > max_bytes_) throw Error("the template makes a text of over {} bytes", max_bytes_);
  }
  // Charges for a new string of n bytes, or of `count` times n bytes.
  void make(size_t n) {
    fits(n);
    read(n);
  }
  void make(size_t n, size_t count) {
    if (count != 0) fits(n > max_bytes_ / count ? max_bytes_ + 1 : n * count);
    make(n * count);
  }
  // The same for a count that a template gives. Returns the count, which is 0 for a negative number.
  size_t make_repeated(size_t n, __int128 wanted) {
    const size_t count = times(wanted);
    make(n, count);
    return count;
  }
  static size_t times(__int128 wanted) { return static_cast<size_t>(std::clamp<__int128>(wanted, 0, size_t(1) << 40)); }
  // Charges for n new items of a list or dictionary. Items cost more than bytes, because each item needs a few hundred
  // bytes of memory.
  void items(size_t n) {
    if (n > kMaxItems) throw Error("the template makes a list of over {} items", kMaxItems);
    spend(1 + 4 * n);
  }
  void nested(size_t depth) const {
    if (depth > max_depth_) throw Error("the template nests values deeper than {}", max_depth_);
  }
  size_t max_depth() const { return max_depth_; }

  static constexpr size_t kMaxItems = 1'000'000;

 private:
  size_t left_;
  size_t max_bytes_;
  size_t max_depth_;
};

// Sets a value during its lifetime, and then restores the old value.
template <class T>
class Hold {
 public:
  Hold(T& slot, T value) : slot_(slot), old_(std::exchange(slot, std::move(value))) {}
  ~Hold() { slot_ = std::move(old_); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  T& slot_;
  T old_;
};

}  // namespace ingot::jinja
