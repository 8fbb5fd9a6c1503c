// The HTTP interface of handlers: a complete request, and a way to answer at once or in pieces. Sockets are behind this
// interface (http/server.h), so handlers compile fast and tests need no network.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/requests/memory_budget.h"

namespace ingot {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"; a HEAD request becomes a GET whose body is not sent
  std::string path;    // canonical, without the query; used for routing and the check of the key
  std::string query;
  HttpHeaders headers;  // names in lower case
  std::string body;
  std::string id;      // the client's X-Request-Id if harmless, otherwise generated
  std::string peer;    // the client's address, for the log
  std::string client;  // the key sent; requests of one key share a turn in the queue and cached prefixes
  std::shared_ptr<MemoryBudget::Part> memory = {};  // of the request, until its answer has been sent; null: not counted

  const std::string* header(std::string_view name) const;  // the first header with that name, or null
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers = {};
};

// An error of a request, with the status and the error object for the client. Thrown by handlers.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& message, std::string param = "", std::string code = "")
      : std::runtime_error(message), status_(status), param_(std::move(param)), code_(std::move(code)) {}

  int status() const { return status_; }
  const std::string& param() const { return param_; }  // the field that caused the error, or ""
  const std::string& code() const { return code_; }    // OpenAI's code, such as context_length_exceeded, or ""
  const char* type() const;                            // invalid_request_error, ..., chosen by the status

 private:
  int status_;
  std::string param_, code_;
};

ApiError no_memory();  // 503: memory has run out in this request

// {"error": {...}}, with Retry-After if the client should try again.
HttpResponse error_response(const ApiError& error);
std::string error_object(const ApiError& error);  // the same object as text
// Anthropic's form: {"type": "error", "error": {...}}.
HttpResponse anthropic_error_response(const ApiError& error);
std::string anthropic_error_object(const ApiError& error);
// Ollama's form: {"error": "..."}.
HttpResponse ollama_error_response(const ApiError& error);
std::string ollama_error_object(const ApiError& error);
// The error in the form of the path's API.
HttpResponse error_for(const std::string& path, const ApiError& error);

inline constexpr size_t kMaxSocketMessage = size_t{8} << 20;  // bytes

// Receives what a client sends over a WebSocket. Called on the network thread; must return quickly.
class SocketHandler {
 public:
  virtual ~SocketHandler() = default;
  virtual void on_message(std::string bytes) = 0;  // text of at most kMaxSocketMessage bytes
  virtual void on_beat() = 0;                      // after each ping interval in which the server sent nothing
};

// The answer to one request. Thread-safe. Call either respond() or stream(), or upgrade(), once. A Responder that is
// destroyed without an answer sends error 500.
class Responder {
 public:
  virtual ~Responder() = default;

  virtual void respond(HttpResponse response) = 0;

  // Starts an answer in pieces. The head is sent with the first piece, or after a long silence, so that the client sees
  // that the server is alive. Until then, fail() can still change the status.
  virtual void stream(HttpResponse head) = 0;
  virtual void write(std::string bytes) = 0;
  // Answers a handshake for a WebSocket (http/web_socket.h). From then on, each write() is a message, end() closes the
  // socket with `last_bytes` as the reason, and on_gone() says that the client has closed it.
  virtual void upgrade(HttpHeaders /* of accept_socket() */, std::shared_ptr<SocketHandler>) {
    throw ApiError(400, "this answer cannot become a WebSocket");
  }
  // Ends the stream with `last_bytes`. The client gets no ping after them: a space after the last JSON line would be
  // a line that is not JSON.
  virtual void end(std::string last_bytes) = 0;
  // Ends a stream that cannot continue. Sends `response` if no byte of the stream has been sent. Otherwise sends
  // `last_bytes` and closes the connection.
  virtual void fail(HttpResponse response, std::string last_bytes) = 0;

  // Whether the output buffer is full: the caller should stop until the on_room callback runs.
  virtual bool full() const = 0;
  // on_gone: called once when the client has disconnected, possibly at once. on_room: called when a full connection has
  // room again. Both run on the network thread and must return quickly.
  virtual void on_gone(std::function<void()> callback) = 0;
  virtual void on_room(std::function<void()> callback) = 0;

  // Adds a pair of a name and a JSON value to the access log.
  virtual void note(std::string name, std::string json_value) = 0;
};

// The access log's record of a finished request.
struct AccessRecord {
  std::string id, method, path, peer;
  int status = 0;
  double ms = 0;
  size_t bytes_in = 0, bytes_out = 0;
  bool handled = false;  // handle() was called
  bool gone = false;     // the client disconnected before the end
  HttpHeaders notes;
};

// Receives requests from the sockets. All calls come from the network thread and must return quickly.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Checks the head before the body is read, and sets the request's id. A returned answer refuses the request.
  virtual std::optional<HttpResponse> refuse(HttpRequest& head) = 0;
  virtual void handle(HttpRequest request, std::shared_ptr<Responder> responder) = 0;
  virtual HttpHeaders common_headers(const HttpRequest& head) = 0;  // headers that every answer gets
  virtual void finished(const AccessRecord& record) = 0;
};

const char* status_text(int status);  // "Not Found"

}  // namespace ingot
