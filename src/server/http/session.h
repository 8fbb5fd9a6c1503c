// Session: one connection. The session reads requests one after another, passes them to the handler and writes the
// answers. A session runs on the network thread only, except for the calls that handlers make to its Responder.
//
// A session has two coroutines. The first always reads into a bounded buffer, so it notices at once that a client has
// disconnected. The second takes requests out of the buffer and writes answers. The coroutines wake each other by
// cancelling a timer.
#pragma once
#include "server/http/coroutine.h"
//
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/http/server.h"
#include "server/http/web_socket.h"

namespace ingot {

namespace asio = boost::asio;
template <class T>
using Task = asio::awaitable<T>;

// Reads and writes bytes: a plain socket or a TLS stream.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual Task<bool> open() = 0;                             // does the TLS handshake; false: it failed
  virtual Task<size_t> read(asio::mutable_buffer into) = 0;  // 0: the end, or an error
  virtual Task<size_t> write(asio::const_buffer from) = 0;   // 0: an error
  // Writes as many bytes as possible without waiting. 0: call write(), which reports errors.
  virtual size_t write_now(asio::const_buffer) { return 0; }
  virtual void finish_writing() = 0;                         // half-close, so that the client sees the end
  virtual void close() = 0;                                  // closes at once; pending reads and writes return 0
  // After read() has returned the end: whether the client may still read the answer. The client may have closed one
  // direction only.
  virtual bool may_still_read() = 0;
  virtual asio::any_io_executor executor() = 0;
  virtual const std::string& peer() const = 0;
};

// State shared by the sessions of a server.
struct ServerShared {
  const HttpServerOptions& options;
  HttpHandler& handler;
  bool draining = false;
  size_t n_sessions = 0;
};

class Exchange;

// The output that an exchange must send now.
struct ExchangeOutput {
  std::optional<HttpResponse> head;  // set once
  bool is_stream = false;
  std::string bytes;
  bool over = false;
  bool broken = false;  // over, but the answer is incomplete
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  // `memory`: the connection's part of the budget.
  Session(std::unique_ptr<Transport> transport, std::shared_ptr<ServerShared> shared, MemoryBudget::Part memory = {});
  ~Session();
  void start();
  void close();  // closes at once
  void drain();  // closes now if the session waits for a request, else after its answer
  void wake() { wake_.cancel(); }
  asio::any_io_executor executor() { return transport_->executor(); }
  const HttpServerOptions& options() const { return shared_->options; }

 private:
  using Clock = std::chrono::steady_clock;

  // The progress of the current answer.
  struct Reply {
    const HttpHead& head;
    bool keep_alive = false;
    int status = 0;  // 0: the head has not been sent
    std::string_view nothing = ": ping\n\n";  // bytes that clients of a stream ignore, to show that the server is alive
    bool is_stream = false, is_socket = false, over = false, probing = false, wants_head = false;
    Clock::time_point last_beat{};  // when bytes were sent last, or when the session found that it has none to send
    std::string piece(const std::string& bytes) const;  // the wire form of a piece of a stream
  };

  Task<void> run();
  Task<void> read_forever();
  Task<bool> serve_one();  // false: the connection has ended
  Task<bool> read_head(size_t& length);
  Task<std::string> read_body(std::string_view head_bytes, const HttpHead& head, MemoryBudget::Part& memory);
  Task<bool> answer(Exchange& exchange, Reply& reply);
  void read_socket(Exchange& exchange);
  Task<void> refuse(const HttpRequest& request, const HttpResponse& response, Clock::time_point begin);
  Task<bool> send(std::string bytes);
  Task<void> linger();
  Task<void> sleep_until(Clock::time_point deadline);  // or until wake()
  std::string wire_bytes(const ExchangeOutput& output, Reply& reply) const;
  std::string head_of(const HttpRequest& request, const HttpResponse& response, bool keep_alive, bool chunked,
                      bool has_length = true) const;

  std::unique_ptr<Transport> transport_;
  std::shared_ptr<ServerShared> shared_;
  const MemoryBudget::Part memory_;
  asio::steady_timer wake_, room_, stall_;
  std::string in_;  // bytes read, but not yet taken
  bool in_ended_ = false;
  bool closed_ = false;
  bool waiting_for_request_ = false;
  std::weak_ptr<Exchange> exchange_;
  std::optional<SocketReader> frames_;  // of a WebSocket
  size_t bytes_out_ = 0;  // bytes of the current answer
  size_t n_served_ = 0;
};

}  // namespace ingot
