// Exchange: the Responder of one request on a connection. Handlers add bytes from their threads, and the session takes
// the bytes out. One mutex guards all members. Callbacks run without the mutex.
#pragma once
#include <boost/asio/post.hpp>
#include <mutex>

#include "base/log.h"
#include "server/http/session.h"
#include "server/http/web_socket.h"

namespace ingot {

class Exchange final : public Responder, public std::enable_shared_from_this<Exchange> {
 public:
  explicit Exchange(std::shared_ptr<Session> session)
      : session_(session), executor_(session->executor()), room_bytes_(session->options().out_buffer_bytes) {}

  // ---- handlers, any thread ----
  void respond(HttpResponse response) override {
    std::lock_guard lock(mutex_);
    if (head_ || over_) return;
    head_ = std::move(response);
    over_ = true;
    notify();
  }
  void stream(HttpResponse head) override {
    std::lock_guard lock(mutex_);
    if (head_ || over_) return;
    head_ = std::move(head);
    is_stream_ = true;
  }
  void upgrade(HttpHeaders headers, std::shared_ptr<SocketHandler> handler) override {
    std::lock_guard lock(mutex_);
    if (head_ || over_ || gone_) return;
    head_ = HttpResponse{.status = 101, .headers = std::move(headers)};
    is_stream_ = true;
    socket_ = std::move(handler);
    notify();
  }
  void write(std::string bytes) override {
    std::lock_guard lock(mutex_);
    if (over_ || gone_) return;
    out_ += socket_ ? socket_frame(SocketFrame::kText, bytes) : bytes;
    notify();
  }
  void end(std::string last_bytes) override {
    std::lock_guard lock(mutex_);
    if (socket_) last_bytes = socket_frame(SocketFrame::kClose, close_payload(1000, last_bytes));
    if (!over_ && !gone_) out_ += last_bytes;
    over_ = true;
    notify();
  }
  void fail(HttpResponse response, std::string last_bytes) override {
    std::lock_guard lock(mutex_);
    if (over_) return;
    over_ = true;
    if (head_taken_) {
      out_ += last_bytes;
      broken_ = true;
    } else {
      head_ = std::move(response);
      is_stream_ = false;
      out_.clear();
    }
    notify();
  }
  bool full() const override {
    std::lock_guard lock(mutex_);
    return out_.size() + in_flight_ > room_bytes_;
  }
  void on_gone(std::function<void()> callback) override {
    {
      std::lock_guard lock(mutex_);
      if (!gone_) {
        on_gone_ = std::move(callback);
        return;
      }
    }
    callback();
  }
  void on_room(std::function<void()> callback) override {
    std::lock_guard lock(mutex_);
    on_room_ = std::move(callback);
  }
  void note(std::string name, std::string json_value) override {
    std::lock_guard lock(mutex_);
    notes_.emplace_back(std::move(name), std::move(json_value));
  }

  // ---- the session, network thread ----
  using Output = ExchangeOutput;
  // Returns the output that can be sent now. It includes a stream's head if the stream has bytes or if `wants_head` is
  // set.
  Output take(bool wants_head) {
    std::lock_guard lock(mutex_);
    notified_ = false;
    Output output{.is_stream = is_stream_, .over = over_, .broken = broken_};
    if (head_ && !head_taken_ && (!is_stream_ || socket_ || !out_.empty() || over_ || wants_head)) {
      output.head.emplace(std::move(*head_));  // head_ stays set
      head_taken_ = true;
    }
    output.bytes = std::exchange(out_, {});
    in_flight_ = output.bytes.size();
    return output;
  }
  // The handler of a WebSocket, or null.
  std::shared_ptr<SocketHandler> socket() const {
    std::lock_guard lock(mutex_);
    return socket_;
  }
  // Sends frames. close: the last ones.
  void send_frames(const std::string& bytes, bool close) {
    std::lock_guard lock(mutex_);
    if (!over_) out_ += bytes;
    over_ |= close;
    notify();
  }
  bool is_answered() const {
    std::lock_guard lock(mutex_);
    return over_;
  }
  // Ends the exchange without an answer, when there is no memory for an error.
  void drop() {
    std::lock_guard lock(mutex_);
    over_ = broken_ = dropped_ = true;
    try {
      notify();
    } catch (const std::exception&) {  // the session also polls
    }
  }
  bool dropped() const {
    std::lock_guard lock(mutex_);
    return dropped_ && !head_;
  }
  // The kind of answer, if known yet. A handler that calls on_gone() without a stream will send a whole answer.
  enum class Kind { kUnknown, kWhole, kStream };
  Kind kind() const {
    std::lock_guard lock(mutex_);
    return is_stream_ ? Kind::kStream : on_gone_ ? Kind::kWhole : Kind::kUnknown;
  }
  void sent() {
    std::function<void()> callback;
    {
      std::lock_guard lock(mutex_);
      in_flight_ = 0;
      if (out_.size() <= room_bytes_ / 2) callback = on_room_;
    }
    if (callback) callback();
  }
  // The client has left, or the answer is complete: no callback runs after this one.
  void gone() {
    std::function<void()> callback;
    std::shared_ptr<SocketHandler> socket;  // it may own the last Responder, whose end takes the mutex
    {
      std::lock_guard lock(mutex_);
      if (gone_) return;
      gone_ = true;
      out_.clear();
      on_room_ = nullptr;
      callback = std::exchange(on_gone_, nullptr);
      socket = std::move(socket_);
    }
    try {
      if (callback) callback();
    } catch (const std::exception& error) {  // without memory to cancel it, the request runs to its end
      log_warn("a request without a client was not cancelled: {}", error.what());
    }
  }
  void finished() {
    std::lock_guard lock(mutex_);
    on_gone_ = on_room_ = nullptr;
  }
  HttpHeaders notes() const {
    std::lock_guard lock(mutex_);
    return notes_;
  }

 private:
  void notify() {
    if (std::exchange(notified_, true)) return;
    try {
      asio::post(executor_, [weak = session_] {
        if (const auto session = weak.lock()) session->wake();
      });
    } catch (...) {  // no memory: the next notify() wakes the session, and the session polls
      notified_ = false;
      throw;
    }
  }

  const std::weak_ptr<Session> session_;
  const asio::any_io_executor executor_;
  const size_t room_bytes_;
  mutable std::mutex mutex_;
  std::optional<HttpResponse> head_;
  bool head_taken_ = false, is_stream_ = false, over_ = false, broken_ = false, gone_ = false, dropped_ = false;
  bool notified_ = false;  // the session has been notified of output
  std::string out_;
  std::shared_ptr<SocketHandler> socket_;
  size_t in_flight_ = 0;  // bytes that the session is sending
  std::function<void()> on_gone_, on_room_;
  HttpHeaders notes_;
};

// The Responder that handlers hold. If the last copy is destroyed without an answer, the client gets an error.
class ExchangeHandle final : public Responder {
 public:
  explicit ExchangeHandle(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ~ExchangeHandle() override {
    if (exchange_->is_answered()) return;
    try {
      // A job or an event has been lost, for which there was no memory.
      const ApiError error(503, "the request was dropped without an answer; try again soon");
      exchange_->fail(error_response(error), "data: " + error_object(error) + "\n\n");
    } catch (const std::exception&) {  // no memory for the error either: the connection ends
      exchange_->drop();
    }
  }
  void respond(HttpResponse response) override { exchange_->respond(std::move(response)); }
  void stream(HttpResponse head) override { exchange_->stream(std::move(head)); }
  void upgrade(HttpHeaders headers, std::shared_ptr<SocketHandler> handler) override {
    exchange_->upgrade(std::move(headers), std::move(handler));
  }
  void write(std::string bytes) override { exchange_->write(std::move(bytes)); }
  void end(std::string last_bytes) override { exchange_->end(std::move(last_bytes)); }
  void fail(HttpResponse response, std::string last) override { exchange_->fail(std::move(response), std::move(last)); }
  bool full() const override { return exchange_->full(); }
  void on_gone(std::function<void()> callback) override { exchange_->on_gone(std::move(callback)); }
  void on_room(std::function<void()> callback) override { exchange_->on_room(std::move(callback)); }
  void note(std::string name, std::string value) override { exchange_->note(std::move(name), std::move(value)); }

 private:
  const std::shared_ptr<Exchange> exchange_;
};

}  // namespace ingot
