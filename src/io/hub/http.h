// HTTP for the Hub, on libcurl: GET with redirects followed by hand, so that the access token goes to the endpoint's
// own origin and to no other, and that nothing but https (or http from an http endpoint) is ever asked. What cuts a
// transfer (the network, a stall) is a HubCut, and may be tried again.
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

// Takes the body of an answer of 200 or 206 as it comes.
class HubSink {
 public:
  virtual ~HubSink() = default;
  virtual void begin(const HubResponse& response) = 0;  // headers are there, the body is not
  virtual void write(std::span<const uint8_t> bytes) = 0;
};

constexpr int kLongWait_s = 3;

struct HubHttpOptions {
  std::string endpoint;            // scheme://host[:port][/path]; slashes at its end are dropped
  std::string token;               // sent as a bearer token; empty: none
  std::string certificates;        // a file of the authorities to trust; empty: the system's
  int timeout_s = 30;              // without a byte
  std::function<bool()> stopped;   // asked now and then; true ends everything by HubInterrupted
  std::function<void(const std::string& why, int seconds)> pausing;  // called before a wait of kLongWait_s or more
};

class HubHttp {
 public:
  // Throws Error for an endpoint or token that cannot be one.
  explicit HubHttp(HubHttpOptions options);
  ~HubHttp();

  const HubHttpOptions& options() const { return options_; }

  // The whole answer, whatever its status. Cuts and transient statuses are tried again a few times. Throws HubCut or
  // Error.
  HubResponse get(const std::string& url, size_t max_bytes);

  // One attempt: the bytes from `from` on go to the sink; of an answer that is neither 200 nor 206, the status comes
  // back. Throws HubCut, or what the sink throws.
  HubResponse fetch(const std::string& url, uint64_t from, HubSink& sink);

  // Waits after failure n (from 1): longer each time, or as long as the server wants, up to half a minute.
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
