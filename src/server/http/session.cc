#include "server/http/session.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/check.h"
#include "base/log.h"
#include "server/http/exchange.h"
#include "server/requests/request_memory.h"

namespace ingot {
namespace {

namespace http = boost::beast::http;

constexpr size_t kReadBytes = 16 << 10, kInBytes = 64 << 10;
constexpr size_t kBodyCopies = 3;  // of a growing body: the old text, and the new text with its room to grow
constexpr std::chrono::milliseconds kProbeInterval{50};
constexpr std::string_view kEmptyPing{"\x89\0", 2};

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// The target of a request, even if its head is refused. The target selects the form of the error.
std::string target_of(std::string_view head) {
  const size_t begin = head.find(' ') + 1;
  return std::string(head.substr(begin, head.find(' ', begin) - begin));
}

}  // namespace

Session::Session(std::unique_ptr<Transport> transport, std::shared_ptr<ServerShared> shared, MemoryBudget::Part memory)
    : transport_(std::move(transport)),
      shared_(std::move(shared)),
      memory_(std::move(memory)),
      wake_(transport_->executor()),
      room_(transport_->executor()),
      stall_(transport_->executor()) {
  ++shared_->n_sessions;
}

Session::~Session() { --shared_->n_sessions; }

void Session::start() {
  asio::co_spawn(
      executor(), [self = shared_from_this()] { return self->run(); }, asio::detached);
}

void Session::close() {
  if (std::exchange(closed_, true)) return;
  transport_->close();
  if (const auto exchange = exchange_.lock()) exchange->gone();
  wake_.cancel();
  room_.cancel();
  stall_.cancel();
}

void Session::drain() {
  if (waiting_for_request_ && in_.empty() && n_served_ > 0) close();
}

Task<void> Session::run() {
  const auto self = shared_from_this();
  try {
    const auto deadline = Clock::now() + options().head_deadline;
    stall_.expires_at(deadline);
    stall_.async_wait([weak = weak_from_this()](boost::system::error_code error) {
      if (const auto session = weak.lock(); session && !error) session->close();
    });
    const bool opened = co_await transport_->open();
    stall_.cancel();
    if (opened) {
      asio::co_spawn(
          executor(), [self] { return self->read_forever(); }, asio::detached);
      while (!closed_) {
        const bool more = co_await serve_one();
        if (!more) break;
      }
    }
  } catch (const std::exception& error) {
    log_warn("a connection failed: {}", error.what());
  }
  close();
}

// Reads until the client closes, or until memory runs out.
Task<void> Session::read_forever() {
  const auto self = shared_from_this();
  try {
    std::string bytes(kReadBytes, '\0');
    while (!closed_) {
      if (in_.size() >= kInBytes) {
        boost::system::error_code ignored;
        room_.expires_at(Clock::time_point::max());
        co_await room_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        continue;
      }
      const size_t n = co_await transport_->read(asio::buffer(bytes));
      if (n == 0) break;
      in_.append(bytes, 0, n);
      wake();
    }
  } catch (const std::exception& error) {
    log_warn("stopped reading a connection: {}", error.what());
  }
  in_ended_ = true;
  wake();
}

Task<void> Session::sleep_until(Clock::time_point deadline) {
  if (in_.size() < kInBytes) room_.cancel();
  boost::system::error_code ignored;
  wake_.expires_at(deadline);
  co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

// Returns false if the connection ended or was idle for too long before a request began.
Task<bool> Session::read_head(size_t& length) {
  const auto idle_deadline = Clock::now() + options().idle_deadline;
  waiting_for_request_ = true;
  while (in_.empty() && !in_ended_ && !closed_) {
    if ((shared_->draining && n_served_ > 0) || Clock::now() >= idle_deadline) break;
    co_await sleep_until(idle_deadline);
  }
  waiting_for_request_ = false;
  if (in_.empty() || closed_) co_return false;
  const auto deadline = Clock::now() + options().head_deadline;
  for (;;) {
    if (const auto found = head_length(in_, options().limits)) {
      length = *found;
      co_return true;
    }
    if (in_ended_ || closed_) co_return false;
    if (Clock::now() >= deadline) throw ApiError(408, "the request's headers did not arrive in time");
    co_await sleep_until(deadline);
  }
}

// Takes the body out of in_; the body begins after the head. Throws ApiError (400, 408, 413, 503).
Task<std::string> Session::read_body(std::string_view head_bytes, const HttpHead& head, MemoryBudget::Part& memory) {
  if (!head.body.chunked && head.body.length == 0) co_return std::string();
  if (kBodyCopies * head.body.length > memory.limit()) take_memory(memory, kBodyCopies * head.body.length);
  http::request_parser<http::string_body> parser;
  parser.eager(true);
  parser.header_limit(static_cast<uint32_t>(options().limits.head_bytes + 4));
  parser.body_limit(options().limits.body_bytes);
  boost::system::error_code error;
  parser.put(asio::buffer(head_bytes), error);
  const auto begin = Clock::now();
  size_t n_taken = 0;
  for (;;) {
    while (!in_.empty() && !parser.is_done()) {
      error = {};
      const size_t n = parser.put(asio::buffer(in_), error);
      in_.erase(0, n);
      n_taken += n;
      if (error == http::error::need_more && in_.size() >= kInBytes)
        throw ApiError(400, "the header of a chunk of the body is too long");
      if (error == http::error::body_limit)
        throw ApiError(413, fmt::format("the body has more than {} bytes", options().limits.body_bytes));
      if (error && error != http::error::need_more) throw ApiError(400, "the body's chunks are malformed");
      take_memory(memory, kBodyCopies * n_taken);
      if (n == 0) break;
    }
    if (parser.is_done()) co_return std::move(parser.get().body());
    if (in_ended_ || closed_) throw ApiError(400, "the connection ended before the body did");
    const auto earned = std::chrono::milliseconds(n_taken * 1000 / options().body_bytes_per_second);
    const auto deadline = begin + options().body_deadline + earned;
    if (Clock::now() >= deadline) throw ApiError(408, "the body arrived too slowly");
    co_await sleep_until(deadline);
  }
}

Task<bool> Session::serve_one() {
  std::optional<HttpResponse> refusal;
  HttpHead head;
  std::string head_bytes, body;
  auto memory = std::make_shared<MemoryBudget::Part>(options().memory);  // until the answer has been sent
  auto begin = Clock::now();
  bytes_out_ = 0;
  try {
    size_t length = 0;
    const bool found = co_await read_head(length);
    if (!found) co_return false;
    begin = Clock::now();
    head_bytes = in_.substr(0, length);
    in_.erase(0, length);
    head = parse_head(head_bytes, options().limits);
    head.request.peer = transport_->peer();
    refusal = shared_->handler.refuse(head.request);
    if (!refusal) {
      if (head.expects_continue && in_.empty()) co_await send("HTTP/1.1 100 Continue\r\n\r\n");
      body = co_await read_body(head_bytes, head, *memory);
    }
  } catch (const ApiError& error) {
    refusal = error_for(target_of(head_bytes), error);
  } catch (const std::bad_alloc&) {
    refusal = error_for(target_of(head_bytes), no_memory());
  }
  if (closed_) co_return false;
  if (refusal) {
    memory.reset();
    co_await refuse(head.request, *refusal, begin);
    co_return false;
  }
  const auto exchange = std::make_shared<Exchange>(shared_from_this());
  exchange_ = exchange;
  AccessRecord record{.id = head.request.id,
                      .method = head.is_head ? "HEAD" : head.request.method,
                      .path = head.request.path,
                      .peer = head.request.peer,
                      .bytes_in = body.size(),
                      .handled = true};
  ++n_served_;
  HttpRequest request = head.request;
  request.body = std::move(body);
  request.memory = memory;
  shared_->handler.handle(std::move(request), std::make_shared<ExchangeHandle>(exchange));
  Reply reply{.head = head, .keep_alive = head.keep_alive && !shared_->draining};
  try {
    record.gone = !co_await answer(*exchange, reply);
  } catch (const std::exception& error) {  // out of memory for the answer
    log_warn("an answer could not be written: {}", error.what());
    exchange->gone();
    record.gone = true;
  }
  record.status = reply.status;
  record.ms = ms_since(begin);
  record.bytes_out = bytes_out_;
  try {
    record.notes = exchange->notes();
  } catch (const std::bad_alloc&) {  // the log has no notes of this request
  }
  shared_->handler.finished(record);
  memory.reset();
  if (record.gone) co_return false;
  if (!reply.keep_alive) co_await linger();
  co_return reply.keep_alive;
}

// Sends the handler's output until the answer is complete. Returns false if the client disconnects before.
Task<bool> Session::answer(Exchange& exchange, Reply& reply) {
  bool healthy = true;
  reply.last_beat = Clock::now();
  for (;;) {
    const bool silent = Clock::now() - reply.last_beat >= options().ping_interval;
    if (silent) reply.last_beat = Clock::now();  // even if there is nothing to send, so that the deadline below is later
    const Exchange::Output output = exchange.take(silent || reply.wants_head);
    std::string bytes = wire_bytes(output, reply);
    if (bytes.empty() && silent && reply.is_stream) bytes = reply.piece(std::string(reply.nothing));
    if (silent && reply.is_socket)
      if (const auto handler = exchange.socket()) handler->on_beat();
    if (!bytes.empty()) {
      healthy = co_await send(std::move(bytes));
      reply.last_beat = Clock::now();
      exchange.sent();
      if (healthy && !reply.over) continue;
    }
    if (reply.over || !healthy || closed_) break;
    healthy = !exchange.dropped() && !(reply.is_socket && in_ended_);
    if (!healthy) break;
    if (reply.is_socket && !in_.empty()) read_socket(exchange);
    if (in_ended_ && exchange.kind() != Exchange::Kind::kUnknown) {
      // The client has closed its side, but may still read. To find out, the session sends some bytes, because a client
      // that no longer reads answers them with a reset. The bytes are a piece of the stream, the stream's head, or,
      // before a whole answer, a response 100, which every HTTP/1.1 client ignores. HTTP/1.0 has no such response, so
      // its clients are assumed to read.
      healthy = transport_->may_still_read();
      if (!healthy) break;
      if (!std::exchange(reply.probing, true)) {
        if (reply.is_stream) {
          healthy = co_await send(reply.piece(std::string(reply.nothing)));
        } else if (exchange.kind() == Exchange::Kind::kStream) {
          reply.wants_head = true;
        } else if (reply.head.is_http_1_1) {
          healthy = co_await send("HTTP/1.1 100 Continue\r\n\r\n");
        }
        continue;
      }
    }
    auto deadline = reply.last_beat + options().ping_interval;
    if (in_ended_) deadline = std::min(deadline, Clock::now() + kProbeInterval);
    co_await sleep_until(deadline);
  }
  healthy = healthy && !closed_;
  if (healthy && !reply.is_socket) {
    exchange.finished();
  } else {
    exchange.gone();
  }
  co_return healthy;
}

// Passes on what the client of a WebSocket has sent. Pings are answered, and so is the end.
void Session::read_socket(Exchange& exchange) {
  const std::shared_ptr<SocketHandler> handler = exchange.socket();
  if (!handler) return in_.clear();
  if (!frames_) frames_.emplace(kMaxSocketMessage);
  const std::string bytes = std::exchange(in_, {});
  std::string_view left = bytes;
  try {
    while (auto message = frames_->next(left)) {
      switch (message->kind) {
        case SocketFrame::kText: handler->on_message(std::move(message->bytes)); break;
        case SocketFrame::kPing: exchange.send_frames(socket_frame(SocketFrame::kPong, message->bytes), false); break;
        case SocketFrame::kPong: break;
        case SocketFrame::kClose:
          return exchange.send_frames(socket_frame(SocketFrame::kClose, message->bytes.substr(0, 2)), true);
        case SocketFrame::kBinary: throw SocketReader::Fault{1003, "messages must be text"};
      }
    }
  } catch (const SocketReader::Fault& fault) {
    exchange.send_frames(socket_frame(SocketFrame::kClose, close_payload(fault.code, fault.why)), true);
  }
  in_.insert(0, left);
}

std::string Session::wire_bytes(const Exchange::Output& output, Reply& reply) const {
  std::string bytes;
  if (output.head) {
    reply.is_stream = output.is_stream;
    reply.status = output.head->status;
    reply.is_socket = reply.status == 101;
    if (output.is_stream && !reply.head.is_http_1_1) reply.keep_alive = false;
    // JSON lines have no comments, but a space may precede a line.
    if (!output.head->content_type.starts_with("text/event-stream")) reply.nothing = " ";
    if (reply.is_socket) reply.nothing = kEmptyPing, reply.keep_alive = false;
    bytes = head_of(reply.head.request, *output.head, reply.keep_alive, reply.is_stream && reply.head.is_http_1_1,
                    !reply.is_stream);
    if (!reply.is_stream && !reply.head.is_head) bytes += output.head->body;
  }
  if (!output.bytes.empty()) bytes += reply.piece(output.bytes);
  reply.over = output.over && reply.status != 0;
  if (reply.over && output.broken) reply.keep_alive = false;
  const bool has_chunks = reply.is_stream && !reply.is_socket && reply.head.is_http_1_1 && !reply.head.is_head;
  if (reply.over && has_chunks) bytes += "0\r\n\r\n";
  return bytes;
}

std::string Session::Reply::piece(const std::string& bytes) const {
  if (head.is_head) return "";
  return head.is_http_1_1 && !is_socket ? fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes) : bytes;
}

// Answers without the handler and closes the connection, because its next bytes may not be a request.
Task<void> Session::refuse(const HttpRequest& request, const HttpResponse& response, Clock::time_point begin) {
  std::string bytes = head_of(request, response, false, false) + response.body;
  const bool sent = co_await send(std::move(bytes));
  shared_->handler.finished({.id = request.id,
                             .method = request.method,
                             .path = request.path,
                             .peer = transport_->peer(),
                             .status = response.status,
                             .ms = ms_since(begin),
                             .bytes_out = bytes_out_});
  if (sent) co_await linger();
}

// Closes this side and reads the remaining bytes of the other side for a short time. Closing with unread bytes would
// reset the connection, and the client might never see the answer.
Task<void> Session::linger() {
  transport_->finish_writing();
  const auto deadline = Clock::now() + std::chrono::seconds(2);
  while (!in_ended_ && !closed_ && Clock::now() < deadline) {
    in_.clear();
    co_await sleep_until(deadline);
  }
}

// Returns false if the client has disconnected or reads nothing for too long. Usually all bytes are written at once.
Task<bool> Session::send(std::string bytes) {
  size_t done = closed_ ? 0 : transport_->write_now(asio::buffer(bytes));
  bytes_out_ += done;
  while (done < bytes.size() && !closed_) {
    stall_.expires_after(options().write_deadline);
    stall_.async_wait([weak = weak_from_this()](boost::system::error_code error) {
      if (const auto session = weak.lock(); session && !error) session->close();
    });
    const size_t n = co_await transport_->write(asio::buffer(bytes.data() + done, bytes.size() - done));
    stall_.cancel();
    if (n == 0) co_return false;
    done += n;
    bytes_out_ += n;
  }
  co_return !closed_;
}

std::string Session::head_of(const HttpRequest& request, const HttpResponse& response, bool keep_alive,
                             bool chunked, bool has_length) const {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", response.status, status_text(response.status));
  const auto add = [&](std::string_view name, std::string_view value) {
    out += fmt::format("{}: {}\r\n", name, value);
  };
  const bool is_socket = response.status == 101;  // its headers are those of the handshake
  if (response.status != 204 && !is_socket) add("Content-Type", response.content_type);
  if (is_socket) {
  } else if (chunked) {
    add("Transfer-Encoding", "chunked");
  } else if (response.status != 204 && has_length) {
    add("Content-Length", std::to_string(response.body.size()));
  }
  for (const auto& [name, value] : shared_->handler.common_headers(request)) add(name, value);
  for (const auto& [name, value] : response.headers) add(name, value);
  if (!is_socket) add("Connection", keep_alive ? "keep-alive" : "close");
  return out + "\r\n";
}

}  // namespace ingot
