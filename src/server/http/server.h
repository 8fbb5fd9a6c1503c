// HttpServer: the sockets. One thread handles accepting, reading, sending and deadlines, so handlers must move longer
// work to other threads. HTTP/1.1 with keep-alive and pipelining, over TCP, TLS and Unix sockets.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "server/http/head.h"
#include "server/requests/memory_budget.h"

namespace ingot {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // or the path of a Unix socket, unix:PATH
  int port = 8080;                 // 0: any free port
  const char* port_flag = "--port";  // named in the error if the port is taken
  std::string tls_cert, tls_key;   // PEM files; both or neither
  HttpLimits limits = {};
  size_t max_connections = 4096;
  size_t out_buffer_bytes = 64 << 10;  // unsent bytes of one answer; above this number, full() is true
  std::chrono::milliseconds head_deadline{10'000}, body_deadline{30'000}, idle_deadline{60'000}, write_deadline{60'000};
  size_t body_bytes_per_second = 16 << 10;  // a body that arrives more slowly fails
  std::shared_ptr<MemoryBudget> memory = {};  // for connections and bodies; null: no limit
  std::chrono::milliseconds ping_interval{15'000};
};

class HttpServer {
 public:
  // Binds and listens. Throws Error naming the address. The handler must outlive the server.
  HttpServer(const HttpServerOptions& options, HttpHandler& handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  const std::string& address() const;  // "http://127.0.0.1:8080", with the actual port
  void start();                        // accepts connections on its own thread
  // Thread-safe. drain() closes idle connections at once, and the others after one more answer. stop() closes all
  // connections at once.
  void drain();
  void stop();
  size_t n_connections() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether all addresses of `host` are loopback addresses of this machine. Throws Error for an unknown host.
bool is_loopback(const std::string& host);

}  // namespace ingot
