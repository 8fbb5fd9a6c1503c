#include "server/http/server.h"

#include "server/http/coroutine.h"
//
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/thread_start.h"
#include "server/http/session.h"
#include "server/http/socket.h"

namespace ingot {
namespace {

using Socket = asio::generic::stream_protocol::socket;
using boost::system::error_code;

class PlainTransport final : public Transport {
 public:
  PlainTransport(Socket socket, std::string peer) : socket_(std::move(socket)), peer_(std::move(peer)) {
    error_code ignored;
    socket_.non_blocking(true, ignored);  // for write_now
  }
  Task<bool> open() override { co_return true; }
  Task<size_t> read(asio::mutable_buffer into) override {
    error_code error;
    const size_t n = co_await socket_.async_read_some(into, asio::redirect_error(asio::use_awaitable, error));
    co_return error ? 0 : n;
  }
  Task<size_t> write(asio::const_buffer from) override {
    error_code error;
    const size_t n = co_await socket_.async_write_some(from, asio::redirect_error(asio::use_awaitable, error));
    co_return error ? 0 : n;
  }
  size_t write_now(asio::const_buffer from) override {
    error_code ignored;
    return socket_.write_some(from, ignored);
  }
  void finish_writing() override {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }
  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }
  bool may_still_read() override { return is_connected(socket_.native_handle()); }
  asio::any_io_executor executor() override { return socket_.get_executor(); }
  const std::string& peer() const override { return peer_; }

 private:
  Socket socket_;
  const std::string peer_;
};

class TlsTransport final : public Transport {
 public:
  TlsTransport(Socket socket, asio::ssl::context& context, std::string peer)
      : stream_(std::move(socket), context), peer_(std::move(peer)) {}
  Task<bool> open() override {
    error_code error;
    co_await stream_.async_handshake(asio::ssl::stream_base::server, asio::redirect_error(asio::use_awaitable, error));
    co_return !error;
  }
  Task<size_t> read(asio::mutable_buffer into) override {
    error_code error;
    const size_t n = co_await stream_.async_read_some(into, asio::redirect_error(asio::use_awaitable, error));
    co_return error ? 0 : n;
  }
  Task<size_t> write(asio::const_buffer from) override {
    error_code error;
    const size_t n = co_await stream_.async_write_some(from, asio::redirect_error(asio::use_awaitable, error));
    co_return error ? 0 : n;
  }
  void finish_writing() override {
    // Waiting for the client's close_notify would need a second read while one is pending. Lengths and last chunks
    // already show the client where answers end.
    error_code ignored;
    stream_.next_layer().shutdown(Socket::shutdown_send, ignored);
  }
  void close() override {
    error_code ignored;
    stream_.next_layer().close(ignored);
  }
  bool may_still_read() override { return false; }  // after close_notify, the client reads no more
  asio::any_io_executor executor() override { return stream_.get_executor(); }
  const std::string& peer() const override { return peer_; }

 private:
  asio::ssl::stream<Socket> stream_;
  const std::string peer_;
};

constexpr std::string_view kUnixPrefix = "unix:";

using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

asio::ip::tcp::endpoint tcp_endpoint(asio::io_context& context, const std::string& host, int port) {
  error_code error;
  asio::ip::tcp::resolver resolver(context);
  const auto found =
      resolver.resolve(host, std::to_string(port),
                       asio::ip::resolver_base::passive | asio::ip::resolver_base::address_configured, error);
  if (error || found.empty()) throw Error("cannot listen on host '{}': {}", printable(host), error.message());
  return found.begin()->endpoint();
}

asio::ip::tcp::endpoint tcp_of(const asio::generic::stream_protocol::endpoint& any) {
  asio::ip::tcp::endpoint endpoint;
  std::memcpy(endpoint.data(), any.data(), std::min(endpoint.capacity(), any.size()));
  return endpoint;
}

std::string url_of(const asio::ip::tcp::endpoint& endpoint, const char* scheme) {
  const std::string host = endpoint.address().to_string();
  return fmt::format("{}://{}{}{}:{}", scheme, endpoint.address().is_v6() ? "[" : "", host,
                     endpoint.address().is_v6() ? "]" : "", endpoint.port());
}

void remove_stale_socket(const std::string& path) {
  std::error_code error;
  if (std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::socket)
    std::filesystem::remove(path, error);
}

}  // namespace

bool is_loopback(const std::string& host) {
  if (host.starts_with(kUnixPrefix)) return true;
  asio::io_context context;
  error_code error;
  asio::ip::tcp::resolver resolver(context);
  const auto found = resolver.resolve(host, "0", error);
  if (error || found.empty()) throw Error("host '{}' is not known: {}", printable(host), error.message());
  return std::all_of(found.begin(), found.end(),
                     [](const auto& entry) { return entry.endpoint().address().is_loopback(); });
}

struct HttpServer::State {
  State(const HttpServerOptions& o, HttpHandler& handler)
      : options(o),
        acceptor(context),
        retry(context),
        shared(std::make_shared<ServerShared>(ServerShared{options, handler})) {}

  bool is_unix() const { return options.host.starts_with(kUnixPrefix); }
  asio::generic::stream_protocol::endpoint endpoint();
  void listen();
  void use_tls();
  void run();
  Task<void> accept();
  static void refuse(Socket& socket);
  void begin(Socket socket);

  const HttpServerOptions options;
  asio::io_context context{1};
  std::optional<asio::ssl::context> tls;
  Acceptor acceptor;
  asio::steady_timer retry;
  std::shared_ptr<ServerShared> shared;
  std::vector<std::weak_ptr<Session>> sessions;
  std::string address;
  bool stopping = false;
  std::atomic<size_t> n_connections{0};
  std::thread thread;
};

void HttpServer::State::use_tls() {
  if (options.tls_cert.empty() != options.tls_key.empty()) throw Error("TLS needs both a certificate and a key");
  if (options.tls_cert.empty()) return;
  tls.emplace(asio::ssl::context::tls_server);
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                   asio::ssl::context::no_tlsv1_1);
  error_code error;
  tls->use_certificate_chain_file(options.tls_cert, error);
  if (error) throw Error("{}: cannot be read as a PEM certificate: {}", printable(options.tls_cert), error.message());
  tls->use_private_key_file(options.tls_key, asio::ssl::context::pem, error);
  if (error)
    throw Error("{}: cannot be read as the PEM key of the certificate: {}", printable(options.tls_key),
                error.message());
}

// The endpoint for the acceptor: a path or a port.
asio::generic::stream_protocol::endpoint HttpServer::State::endpoint() {
  if (!is_unix()) return tcp_endpoint(context, options.host, options.port);
  const std::string path = options.host.substr(kUnixPrefix.size());
  if (path.empty() || path.size() > 107)
    throw Error("the path of a Unix socket has 1 to 107 bytes, not {}", path.size());
  remove_stale_socket(path);
  return asio::local::stream_protocol::endpoint(path);
}

void HttpServer::State::listen() {
  use_tls();
  const asio::generic::stream_protocol::endpoint wanted = endpoint();
  error_code error;
  acceptor.open(wanted.protocol(), error);
  if (!error && !is_unix()) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(wanted, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    const std::string where = is_unix() ? "" : fmt::format(" port {}", options.port);
    const bool is_taken = error == asio::error::address_in_use && !is_unix();
    throw Error("cannot listen on {}{}: {}{}{}", printable(options.host), where, error.message(),
                is_taken ? "; choose another with " : "", is_taken ? options.port_flag : "");
  }
  address = is_unix() ? options.host : url_of(tcp_of(acceptor.local_endpoint()), tls ? "https" : "http");
}

// Runs the network thread. If a handler throws (for example when out of memory), only that handler's work is lost.
void HttpServer::State::run() {
  for (;;) {
    try {
      context.run();
      return;
    } catch (const std::exception& error) {
      log_warn("the network thread continues after an error: {}", error.what());
    }
  }
}

Task<void> HttpServer::State::accept() {
  while (!stopping) {
    error_code error;
    Socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (stopping) break;
    if (error) {  // for example out of file descriptors: do not spin
      log_warn("cannot accept a connection: {}", error.message());
      retry.expires_after(std::chrono::milliseconds(100));
      co_await retry.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    try {
      begin(std::move(socket));
    } catch (const std::exception& failure) {  // out of memory for this connection; the next one may succeed
      log_warn("cannot serve a connection: {}", failure.what());
    }
  }
}

void HttpServer::State::refuse(Socket& socket) {
  static constexpr std::string_view kBusy =
      "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(kBusy), ignored);
}

void HttpServer::State::begin(Socket socket) {
  std::erase_if(sessions, [](const auto& session) { return session.expired(); });
  n_connections = sessions.size();
  error_code ignored;
  if (sessions.size() >= options.max_connections) return refuse(socket);
  constexpr size_t kConnectionBytes = 96 << 10;  // the bytes that it may have read, their buffer and two coroutines
  MemoryBudget::Part memory(options.memory, MemoryBudget::Use::kConnection);
  if (!memory.set(kConnectionBytes)) return refuse(socket);
  std::string peer = "unix";
  if (!is_unix()) {
    socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    peer = tcp_of(socket.remote_endpoint(ignored)).address().to_string();
  }
  std::unique_ptr<Transport> transport;
  if (tls) {
    transport = std::make_unique<TlsTransport>(std::move(socket), *tls, std::move(peer));
  } else {
    transport = std::make_unique<PlainTransport>(std::move(socket), std::move(peer));
  }
  const auto session = std::make_shared<Session>(std::move(transport), shared, std::move(memory));
  sessions.push_back(session);
  session->start();
}

HttpServer::HttpServer(const HttpServerOptions& options, HttpHandler& handler)
    : state_(std::make_unique<State>(options, handler)) {
  state_->listen();
}

HttpServer::~HttpServer() { stop(); }

const std::string& HttpServer::address() const { return state_->address; }

size_t HttpServer::n_connections() const { return state_->n_connections; }

void HttpServer::start() {
  State* state = state_.get();
  asio::co_spawn(
      state->context, [state] { return state->accept(); }, asio::detached);
  state->thread = start_thread("the network's thread", [state] { return std::thread([state] { state->run(); }); });
}

void HttpServer::drain() {
  asio::post(state_->context, [state = state_.get()] {
    state->shared->draining = true;
    for (const auto& weak : state->sessions)
      if (const auto session = weak.lock()) session->drain();
  });
}

void HttpServer::stop() {
  if (!state_->thread.joinable()) return;
  asio::post(state_->context, [state = state_.get()] {
    state->stopping = true;
    error_code ignored;
    state->acceptor.close(ignored);
    for (const auto& weak : state->sessions)
      if (const auto session = weak.lock()) session->close();
    state->retry.cancel();
  });
  state_->thread.join();
  if (state_->is_unix()) remove_stale_socket(state_->options.host.substr(kUnixPrefix.size()));
}

}  // namespace ingot
