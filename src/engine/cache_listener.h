// CacheListener: is notified which full blocks are in the prefix cache. Routers use these events to send a request to
// the server with its longest cached prefix (server/models/kv_events.h). Called on the stepping thread. Only requests
// with publishes_prefix cause events. Blocks with vectors cause none, because their tokens do not identify them.
#pragma once
#include <cstdint>
#include <span>

namespace ingot {

class CacheListener {
 public:
  virtual ~CacheListener() = default;
  // `block` has these tokens after block `parent` (0: `block` is the first). Ids are never reused.
  virtual void cached(uint64_t block, uint64_t parent, std::span<const int32_t> tokens) = 0;
  virtual void evicted(uint64_t block) = 0;
};

}  // namespace ingot
