#include "server/models/kv_events.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/json.h"
#include "base/thread_start.h"

namespace ingot {
namespace {

constexpr size_t kMaxReplay = 10'000;  // messages
constexpr auto kReplayInterval = std::chrono::milliseconds(50);

std::string big_endian(uint64_t number) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(number >> shift & 255));
  return bytes;
}

uint64_t number_of(const std::string& big_endian) {
  uint64_t number = 0;
  for (const char c : big_endian) number = number << 8 | static_cast<uint8_t>(c);
  return number;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

KvEvents::KvEvents(const KvEventsOptions& options)
    : options_(options), events_(ZmqSocket::Kind::kPublish, options.endpoint) {
  if (!options.replay.empty()) replay_ = std::make_unique<ZmqSocket>(ZmqSocket::Kind::kRouter, options.replay);
  thread_ =
      start_thread("the thread that publishes events of the KV cache", [&] { return std::thread([this] { run(); }); });
}

KvEvents::~KvEvents() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void KvEvents::cached(uint64_t block, uint64_t parent, std::span<const int32_t> tokens) {
  add({.kind = Event::Kind::kCached, .blocks = {block}, .parent = parent, .tokens = {tokens.begin(), tokens.end()}});
}

void KvEvents::evicted(uint64_t block) { add({.kind = Event::Kind::kEvicted, .blocks = {block}}); }

void KvEvents::loaded(const std::string& medium) { add({.kind = Event::Kind::kLoaded, .medium = medium}); }

void KvEvents::add(Event event) {
  {
    const std::lock_guard lock(mutex_);
    Event* last = queue_.empty() ? nullptr : &queue_.back();
    const bool continues = last != nullptr && last->kind == event.kind && event.kind != Event::Kind::kLoaded &&
                           (event.kind == Event::Kind::kEvicted || last->blocks.back() == event.parent);
    if (continues) {
      last->blocks.push_back(event.blocks.front());
      last->tokens.insert(last->tokens.end(), event.tokens.begin(), event.tokens.end());
    } else {
      queue_.push_back(std::move(event));
    }
  }
  wake_.notify_one();
}

void KvEvents::run() {
  for (bool stops = false; !stops;) {
    std::vector<Event> events;
    {
      std::unique_lock lock(mutex_);
      const auto is_awake = [&] { return stops_ || !queue_.empty(); };
      replay_ ? static_cast<void>(wake_.wait_for(lock, kReplayInterval, is_awake)) : wake_.wait(lock, is_awake);
      events.swap(queue_);
      stops = stops_;
    }
    if (!events.empty()) publish(events);
    if (replay_) answer_replay();
  }
}

JsonValue KvEvents::json_of(const Event& e) {
  switch (e.kind) {
    case Event::Kind::kLoaded:
      medium_ = e.medium;
      return JsonValue::array({"AllBlocksCleared"});
    case Event::Kind::kEvicted: return JsonValue::array({"BlockRemoved", e.blocks, medium_});
    case Event::Kind::kCached: break;
  }
  const JsonValue parent = e.parent == 0 ? JsonValue() : JsonValue(e.parent);
  return JsonValue::array(
      {"BlockStored", e.blocks, parent, e.tokens, e.tokens.size() / e.blocks.size(), nullptr, medium_, nullptr});
}

void KvEvents::publish(const std::vector<Event>& events) {
  JsonValue list = JsonValue::array();
  for (const Event& event : events) list.push_back(json_of(event));
  const std::vector<uint8_t> body = JsonValue::to_msgpack(JsonValue::array({seconds_now(), list, 0}));
  Message message{big_endian(n_sent_++), {body.begin(), body.end()}};
  events_.send({options_.topic, message.number, message.body});
  if (!replay_) return;
  sent_.push_back(std::move(message));
  if (sent_.size() > kMaxReplay) sent_.pop_front();
}

// A request contains the number of the first message wanted. The last message of the reply has the number -1 and no
// body.
void KvEvents::answer_replay() {
  const std::vector<std::string> request = replay_->receive();  // sender's identity, empty part, number
  if (request.size() != 3 || request[2].size() != 8) return;
  const uint64_t first = number_of(request[2]);
  for (const Message& message : sent_)
    if (number_of(message.number) >= first) replay_->send({request[0], "", message.number, message.body});
  replay_->send({request[0], "", big_endian(~uint64_t{0}), ""});
}

}  // namespace ingot
