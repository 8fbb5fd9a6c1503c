// Who may speak to the server: API keys, hosts and origins. Pure functions of a request's head; safe to call from any
// thread.
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "server/http/http.h"

namespace ingot {

// Keys given one by one and in a file, a key a line ('#' begins a comment), which may change while the server runs.
class ApiKeys {
 public:
  // Throws Error when the file cannot be read or has no key.
  ApiKeys(std::vector<std::string> keys, std::string file);
  void reload_if_changed();  // a file that has become bad keeps the keys that were
  bool empty() const;
  // Every key is compared, in time that does not depend on where it differs.
  bool accept(const HttpRequest& request) const;
  // The key that a request shows, if any; empty too when it shows several.
  static std::string shown(const HttpRequest& request);

 private:
  std::vector<std::string> read() const;

  const std::vector<std::string> own_;
  const std::string file_;
  int64_t changed_ns_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> keys_;
};

// Which pages of other sites may use the server from a browser.
class Origins {
 public:
  explicit Origins(std::vector<std::string> allowed) : allowed_(std::move(allowed)) {}
  bool allows(
      const HttpRequest& request) const;  // its Origin: none, the server's own, this machine's, or one that is listed
  HttpHeaders headers(const HttpRequest& request) const;

 private:
  bool allows_all() const;
  const std::vector<std::string> allowed_;  // "https://app.example", or "*"
};

// Whether the Host header names this machine, as it must on a loopback server without a key: otherwise a web page could
// have its own name resolve to 127.0.0.1 and speak to the server as if it were its own (DNS rebinding).
bool is_local_host(const HttpRequest& request);

}  // namespace ingot
