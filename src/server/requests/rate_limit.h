// RateLimit: limits the requests of a client per minute. Each client has a bucket of tokens, which fills steadily up to
// the limit. A request takes one token. Any thread may call the functions.
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

  // Counts a request of the client. If the limit is exceeded, returns the number of seconds until the next request is
  // allowed.
  std::optional<int> take(const std::string& client);

 private:
  struct Bucket {
    double left = 0;  // requests
    Clock::time_point at;
  };
  static constexpr size_t kMaxClients = 1 << 16;  // a forgotten client starts with a full bucket

  const int per_minute_;
  Clock::time_point (*const now_)();
  std::mutex mutex_;
  LruMap<std::string, Bucket> buckets_{kMaxClients};
};

}  // namespace ingot
