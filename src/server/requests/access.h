// Access control: API keys, hosts and origins. Pure functions of a request's head; any thread may call them.
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "server/requests/http.h"

namespace ingot {

// Keys from the command line and from a file with one key per line ('#' begins a comment). The file may change while
// the server runs.
class ApiKeys {
 public:
  // Throws Error if the file cannot be read or has no key.
  ApiKeys(std::vector<std::string> keys, std::string file);
  void reload_if_changed();  // if the changed file is invalid, the old keys stay
  bool empty() const;
  // Compares every key, in a time that does not depend on where the keys differ.
  bool accept(const HttpRequest& request) const;
  // The key that a request shows. Empty if the request shows no key or several different keys.
  static std::string shown(const HttpRequest& request);

 private:
  std::vector<std::string> read() const;

  const std::vector<std::string> own_;
  const std::string file_;
  int64_t changed_ns_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> keys_;
};

// Decides which pages of other sites may use the server from a browser.
class Origins {
 public:
  explicit Origins(std::vector<std::string> allowed) : allowed_(std::move(allowed)) {}
  bool allows(
      const HttpRequest& request) const;  // true if Origin is missing, the server's own, this machine's, or listed
  HttpHeaders headers(const HttpRequest& request) const;

 private:
  bool allows_all() const;
  const std::vector<std::string> allowed_;  // "https://app.example", or "*"
};

// Whether the Host header names this machine. A loopback server without a key requires this. Otherwise a web page could
// make its own host name resolve to 127.0.0.1 and use the server as its own (DNS rebinding).
bool is_local_host(const HttpRequest& request);

}  // namespace ingot
