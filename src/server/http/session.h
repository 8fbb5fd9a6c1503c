// One connection: reads requests one after another, hands them on, writes the answers. Everything of a session happens
// on the network thread, but for what handlers say through its Responder.
//
// Two coroutines: one always reads, into a bounded buffer, and so learns at once that a client has left; the other
// takes requests out of the buffer and writes. They wake each other with a timer that never fires by itself.
#pragma once
#include "server/http/coroutine.h"
//
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/http/server.h"

namespace ingot {

namespace asio = boost::asio;
template <class T>
using Task = asio::awaitable<T>;

// Bytes in and out: a socket, or one under TLS.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual Task<bool> open() = 0;                             // TLS handshake; false when it fails
  virtual Task<size_t> read(asio::mutable_buffer into) = 0;  // 0: the end, or an error
  virtual Task<size_t> write(asio::const_buffer from) = 0;   // 0: an error
  virtual size_t write_now(asio::const_buffer) { return 0; }  // what can go without waiting; 0: write() tells why
  virtual void finish_writing() = 0;                         // half-close, for the client to see the end
  virtual void close() = 0;                                  // at once; reads and writes end with 0
  // After read() has said the end: may the client still be reading what we send? It may have closed one direction only.
  virtual bool may_still_read() = 0;
  virtual asio::any_io_executor executor() = 0;
  virtual const std::string& peer() const = 0;
};

// What the sessions of a server share.
struct ServerShared {
  const HttpServerOptions& options;
  HttpHandler& handler;
  bool draining = false;
  size_t n_sessions = 0;
};

class Exchange;

// What an exchange has to send now.
struct ExchangeOutput {
  std::optional<HttpResponse> head;  // once
  bool is_stream = false;
  std::string bytes;
  bool over = false;
  bool broken = false;  // over, and cut short
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::unique_ptr<Transport> transport, std::shared_ptr<ServerShared> shared);
  ~Session();
  void start();
  void close();  // at once
  void drain();  // closes when it waits for another request; else it does after its answer
  void wake() { wake_.cancel(); }
  asio::any_io_executor executor() { return transport_->executor(); }
  const HttpServerOptions& options() const { return shared_->options; }

 private:
  using Clock = std::chrono::steady_clock;

  // How far the present answer has come.
  struct Reply {
    const HttpHead& head;
    bool keep_alive = false;
    int status = 0;  // 0: its head has not gone out
    bool is_stream = false, over = false, probing = false, wants_head = false;
    Clock::time_point last_sent{};
    std::string piece(const std::string& bytes) const;  // of a stream, as it goes on the wire
  };

  Task<void> run();
  Task<void> read_forever();
  Task<bool> serve_one();  // false: the connection is over
  Task<bool> read_head(size_t& length);
  Task<std::string> read_body(std::string_view head_bytes, const HttpHead& head);
  Task<bool> answer(Exchange& exchange, Reply& reply);
  Task<void> refuse(const HttpRequest& request, const HttpResponse& response, Clock::time_point begin);
  Task<bool> send(std::string bytes);
  Task<void> linger();
  Task<void> sleep_until(Clock::time_point deadline);  // or until wake()
  std::string wire_bytes(const ExchangeOutput& output, Reply& reply) const;
  std::string head_of(const HttpRequest& request, const HttpResponse& response, bool keep_alive, bool chunked) const;

  std::unique_ptr<Transport> transport_;
  std::shared_ptr<ServerShared> shared_;
  asio::steady_timer wake_, room_, stall_;
  std::string in_;  // read and not yet taken
  bool in_ended_ = false;
  bool closed_ = false;
  bool waiting_for_request_ = false;
  std::weak_ptr<Exchange> exchange_;
  size_t bytes_out_ = 0;  // of the present answer
  size_t n_served_ = 0;
};

}  // namespace ingot
