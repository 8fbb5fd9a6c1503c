// HttpServer: the sockets. One thread runs them all (accepting, reading, deadlines, sending); what takes longer than a
// glance is the handler's to move elsewhere. HTTP/1.1 with keep-alive and pipelining, over TCP, TLS and Unix sockets.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "server/http/head.h"

namespace ingot {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // or the path of a Unix socket, unix:PATH
  int port = 8080;                 // 0: any that is free
  std::string tls_cert, tls_key;   // PEM files; both or none
  HttpLimits limits = {};
  size_t max_connections = 4096;
  size_t out_buffer_bytes = 64 << 10;  // of one answer that waits to be sent, beyond which it is full
  std::chrono::milliseconds head_deadline{10'000}, body_deadline{30'000}, idle_deadline{60'000}, write_deadline{60'000};
  size_t body_bytes_per_second = 1 << 10;  // slower than that, a body loses its deadline
  std::chrono::milliseconds ping_interval{15'000};
};

class HttpServer {
 public:
  // Binds and listens; throws Error naming the address. The handler must outlive it.
  HttpServer(const HttpServerOptions& options, HttpHandler& handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  const std::string& address() const;  // "http://127.0.0.1:8080", with the port that was chosen
  void start();                        // accepts, on a thread of its own
  // Thread-safe. drain(): idle connections close, the others after one more answer. stop(): all of them, at once.
  void drain();
  void stop();
  size_t n_connections() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether every address that `host` names is this machine's own. Throws Error for a host that is not known.
bool is_loopback(const std::string& host);

}  // namespace ingot
