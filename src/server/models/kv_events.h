// KvEvents: publishes the prefixes in the KV cache to routers, in vLLM's format. A ZeroMQ message has a topic, a
// sequence number and, in MessagePack, [time, [event, ...], 0]. Events are
//   ["BlockStored", [block, ...], the block before or null, [token, ...], tokens of a block, null, medium, null]
//   ["BlockRemoved", [block, ...], medium]
//   ["AllBlocksCleared"]
// The stepping thread only appends to a queue. A separate thread sends the messages.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/cache_listener.h"
#include "server/models/zeromq.h"
#include "text/json_value.h"

namespace ingot {

struct KvEventsOptions {
  std::string endpoint;           // such as tcp://*:5557
  std::string replay;             // endpoint for routers to request missed messages; empty: none
  std::string topic;
};

class KvEvents final : public CacheListener {
 public:
  explicit KvEvents(const KvEventsOptions& options);  // throws UsageError
  ~KvEvents() override;

  std::string endpoint() const { return events_.endpoint(); }
  std::string replay_endpoint() const { return replay_ ? replay_->endpoint() : ""; }

  void cached(uint64_t block, uint64_t parent, std::span<const int32_t> tokens) override;
  void evicted(uint64_t block) override;
  // Call when the model was loaded: its cache is empty. medium: the place of the cache, "GPU" or "CPU".
  void loaded(const std::string& medium);

 private:
  // Successive blocks of a chain that were cached together form one event. So do blocks that were evicted together.
  struct Event {
    enum class Kind : uint8_t { kCached, kEvicted, kLoaded } kind;
    std::vector<uint64_t> blocks = {};
    uint64_t parent = 0;
    std::vector<int32_t> tokens = {};
    std::string medium = {};
  };
  struct Message {
    std::string number, body;
  };

  void add(Event event);
  void run();
  JsonValue json_of(const Event& event);
  void publish(const std::vector<Event>& events);
  void answer_replay();

  const KvEventsOptions options_;
  ZmqSocket events_;
  std::unique_ptr<ZmqSocket> replay_;
  std::string medium_;
  uint64_t n_sent_ = 0;
  std::deque<Message> sent_;  // the latest messages, for replay

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Event> queue_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace ingot
