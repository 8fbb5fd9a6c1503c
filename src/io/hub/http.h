// HTTP GET requests to the Hub, using libcurl. This code follows redirects instead of libcurl. So the access token is
// sent only to the endpoint's own origin, and all requests use https (or http, if the endpoint does). An interrupted
// transfer (network failure, stall) throws HubCut and may be tried again.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "io/hub/api.h"

namespace ingot {

class HubCut : public Error {
 public:
  using Error::Error;
};

class HubInterrupted : public Error {
 public:
  using Error::Error;
};

// Receives the body of a response with status 200 or 206, piece by piece.
class HubSink {
 public:
  virtual ~HubSink() = default;
  virtual void begin(const HubResponse& response) = 0;  // the headers are complete; the body follows
  virtual void write(std::span<const uint8_t> bytes) = 0;
};

constexpr int kLongWait_s = 3;

struct HubHttpOptions {
  std::string endpoint;            // scheme://host[:port][/path]; trailing slashes are dropped
  std::string token;               // sent as a bearer token; empty: no token
  std::string certificates;        // a file of trusted authorities; empty: the system's
  int timeout_s = 30;              // the longest wait for a byte
  std::function<bool()> stopped;   // polled during transfers; returning true throws HubInterrupted
  std::function<void(const std::string& why, int seconds)> pausing;  // called before a wait of kLongWait_s or more
};

class HubHttp {
 public:
  // Throws Error if the endpoint or the token is not valid.
  explicit HubHttp(HubHttpOptions options);
  ~HubHttp();

  const HubHttpOptions& options() const { return options_; }

  // Returns the whole response with any status. Retries interrupted transfers and transient statuses a few times.
  // Throws HubCut or Error.
  HubResponse get(const std::string& url, size_t max_bytes);

  // Makes one attempt: the bytes from offset `from` on go to the sink. The sink gets nothing if the status is neither
  // 200 nor 206. Throws HubCut or the sink's exceptions.
  HubResponse fetch(const std::string& url, uint64_t from, HubSink& sink);

  // Waits after failure n (from 1), longer each time or as long as the server asks, but at most half a minute.
  void wait_after_failure(int n, const HubResponse* response) const;

  void check_stopped() const;

 private:
  struct Transfer;
  HubResponse follow(const std::string& url, uint64_t from, size_t max_bytes, HubSink* sink);
  void perform(const std::string& url, Transfer& transfer);

  const HubHttpOptions options_;
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace ingot
