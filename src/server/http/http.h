// What handlers know of HTTP: a request that has come whole, and a way to answer it at once or piece by piece. Sockets
// are behind this (http/server.h), so that handlers compile fast and tests answer requests without a network.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"; a HEAD request is a GET whose body is not sent
  std::string path;    // canonical, without the query: the one that is both routed and asked for a key
  std::string query;
  HttpHeaders headers;  // names in lower case
  std::string body;
  std::string id;      // the client's X-Request-Id where it is harmless, or our own
  std::string peer;    // address of the client, for the log
  std::string client;  // the key that it showed: whose requests share a turn and cached prefixes

  const std::string* header(std::string_view name) const;  // the first of that name, or null
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers = {};
};

// A request's fault or misfortune, as the status and error object that tell of it. Thrown by handlers.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& message, std::string param = "", std::string code = "")
      : std::runtime_error(message), status_(status), param_(std::move(param)), code_(std::move(code)) {}

  int status() const { return status_; }
  const std::string& param() const { return param_; }  // the field at fault, or ""
  const std::string& code() const { return code_; }    // OpenAI's, such as context_length_exceeded, or ""
  const char* type() const;                            // invalid_request_error, ... by the status

 private:
  int status_;
  std::string param_, code_;
};

// {"error": {...}} with Retry-After where the client should try again.
HttpResponse error_response(const ApiError& error);
std::string error_object(const ApiError& error);  // the same object as text
// Anthropic's: {"type": "error", "error": {...}}.
HttpResponse anthropic_error_response(const ApiError& error);
std::string anthropic_error_object(const ApiError& error);

// The answer to one request. Thread-safe; exactly one of respond() and stream() is called, and then once. One that is
// dropped without an answer answers 500.
class Responder {
 public:
  virtual ~Responder() = default;

  virtual void respond(HttpResponse response) = 0;

  // An answer in pieces. Its head goes out with the first piece, or when the connection has been silent so long that
  // the client needs a sign of life; until then fail() can still change the status.
  virtual void stream(HttpResponse head) = 0;
  virtual void write(std::string bytes) = 0;
  virtual void end() = 0;
  // Ends a stream that cannot go on: with `response` when nothing of it has gone out, else with `last_bytes` and a
  // closed connection.
  virtual void fail(HttpResponse response, std::string last_bytes) = 0;

  // More than the connection will hold waits to be sent: the caller should stop until on_room is called.
  virtual bool full() const = 0;
  // Called when the client has left (once, perhaps at once), and when a full connection has room again. Both on the
  // network thread: they must return quickly.
  virtual void on_gone(std::function<void()> callback) = 0;
  virtual void on_room(std::function<void()> callback) = 0;

  // For the access log: pairs of a name and a JSON value.
  virtual void note(std::string name, std::string json_value) = 0;
};

// What the access log says of a request that is over.
struct AccessRecord {
  std::string id, method, path, peer;
  int status = 0;
  double ms = 0;
  size_t bytes_in = 0, bytes_out = 0;
  bool handled = false;  // handle() saw it
  bool gone = false;     // the client left before the end
  HttpHeaders notes;
};

// What the sockets hand requests to. All calls come from the network thread and must return quickly.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Looks at the head alone, before the body is read, and gives it its id: an answer refuses the request.
  virtual std::optional<HttpResponse> refuse(HttpRequest& head) = 0;
  virtual void handle(HttpRequest request, std::shared_ptr<Responder> responder) = 0;
  virtual HttpHeaders common_headers(const HttpRequest& head) = 0;  // of every answer
  virtual void finished(const AccessRecord& record) = 0;
};

const char* status_text(int status);  // "Not Found"

}  // namespace ingot
