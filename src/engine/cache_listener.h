// CacheListener: hears which full blocks the prefix cache has, for routers that send a request to the server that has
// the longest prefix of it (server/kv_events.h). Called on the stepping thread. It hears of requests with
// publishes_prefix only, and not of blocks with vectors, which their tokens do not identify.
#pragma once
#include <cstdint>
#include <span>

namespace ingot {

class CacheListener {
 public:
  virtual ~CacheListener() = default;
  // `block`, an id that is never used again, has these tokens after block `parent`; 0: they are the first.
  virtual void cached(uint64_t block, uint64_t parent, std::span<const int32_t> tokens) = 0;
  virtual void evicted(uint64_t block) = 0;
};

}  // namespace ingot
