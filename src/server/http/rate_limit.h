// RateLimit: how many requests a client may make in a minute. Each client has a bucket, which fills steadily up to the
// limit; a request takes one. Any thread may call it.
#pragma once
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "base/lru_map.h"

namespace ingot {

class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;
  // `per_minute` 0: no limit. `now` is the time, for tests.
  explicit RateLimit(int per_minute, Clock::time_point (*now)() = Clock::now) : per_minute_(per_minute), now_(now) {}

  // Counts a request of the client. Returns nothing, or the seconds after which the client may ask again.
  std::optional<int> take(const std::string& client);

 private:
  struct Bucket {
    double left = 0;  // requests
    Clock::time_point at;
  };
  static constexpr size_t kMaxClients = 1 << 16;  // a client that is forgotten has a full bucket

  const int per_minute_;
  Clock::time_point (*const now_)();
  std::mutex mutex_;
  LruMap<std::string, Bucket> buckets_{kMaxClients};
};

}  // namespace ingot
