#include "server/requests/rate_limit.h"

#include <algorithm>
#include <cmath>

namespace ingot {

std::optional<int> RateLimit::take(const std::string& client) {
  if (per_minute_ == 0) return std::nullopt;
  const double per_second = per_minute_ / 60.0;
  const Clock::time_point now = now_();
  std::lock_guard lock(mutex_);
  Bucket* bucket = buckets_.find(client);
  if (!bucket) bucket = buckets_.put(client, {.left = static_cast<double>(per_minute_), .at = now});
  const double gained = std::chrono::duration<double>(now - bucket->at).count() * per_second;
  bucket->left = std::min<double>(per_minute_, bucket->left + gained);
  bucket->at = now;
  if (bucket->left < 1) return static_cast<int>(std::ceil((1 - bucket->left) / per_second));
  bucket->left -= 1;
  return std::nullopt;
}

}  // namespace ingot
