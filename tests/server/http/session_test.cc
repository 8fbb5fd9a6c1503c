// A session on a transport without a network: how often it wakes while a client waits.
#include "server/http/session.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace ingot {
namespace {

// The client sends `request` and then waits, or closes its side.
class QuietTransport final : public Transport {
 public:
  QuietTransport(asio::io_context& context, std::string request, bool half_closes)
      : context_(context), never_(context), request_(std::move(request)), half_closes_(half_closes) {}
  Task<bool> open() override { co_return true; }
  Task<size_t> read(asio::mutable_buffer into) override {
    const size_t n = asio::buffer_copy(into, asio::buffer(request_));
    request_.erase(0, n);
    if (n > 0 || half_closes_ || closed_) co_return n;
    boost::system::error_code ignored;
    never_.expires_at(asio::steady_timer::time_point::max());
    co_await never_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    co_return 0;
  }
  Task<size_t> write(asio::const_buffer from) override { co_return write_now(from); }
  size_t write_now(asio::const_buffer from) override { return closed_ ? 0 : from.size(); }
  void finish_writing() override {}
  void close() override {
    closed_ = true;
    never_.cancel();
  }
  bool may_still_read() override { return true; }
  asio::any_io_executor executor() override { return context_.get_executor(); }
  const std::string& peer() const override { return peer_; }

 private:
  asio::io_context& context_;
  asio::steady_timer never_;
  std::string request_;
  const bool half_closes_;
  bool closed_ = false;
  const std::string peer_ = "test";
};

// Never answers. With `streams`, begins a stream; with `is_cancellable`, the session knows the kind of answer.
class SlowHandler final : public HttpHandler {
 public:
  bool streams = false, is_cancellable = false;
  std::shared_ptr<Responder> waiting;

  std::optional<HttpResponse> refuse(HttpRequest&) override { return std::nullopt; }
  void handle(HttpRequest, std::shared_ptr<Responder> responder) override {
    if (streams) responder->stream({.content_type = "text/event-stream"});
    if (is_cancellable) responder->on_gone([] {});
    waiting = std::move(responder);
  }
  HttpHeaders common_headers(const HttpRequest&) override { return {}; }
  void finished(const AccessRecord&) override {}
};

struct SlowCase {
  const char* request_line;
  bool streams, is_cancellable, half_closes;
};

class SlowAnswer : public ::testing::TestWithParam<SlowCase> {};

// Each step of the event loop takes its share of the interval, so the time for many steps has a lower bound. A busy
// machine only lengthens the time.
TEST_P(SlowAnswer, WakesTheThreadOnlyForPings) {
  constexpr std::chrono::milliseconds kInterval{5};
  constexpr int kFirstSteps = 20, kSteps = 40, kStepsPerWake = 4;
  const HttpServerOptions options{.ping_interval = kInterval};
  SlowHandler handler;
  handler.streams = GetParam().streams;
  handler.is_cancellable = GetParam().is_cancellable;
  asio::io_context context;
  {
    const auto shared = std::make_shared<ServerShared>(ServerShared{options, handler});
    auto transport = std::make_unique<QuietTransport>(
        context, std::string(GetParam().request_line) + "Host: a\r\nContent-Length: 0\r\n\r\n", GetParam().half_closes);
    const auto session = std::make_shared<Session>(std::move(transport), shared);
    session->start();
    for (int i = 0; i < kFirstSteps; ++i) context.run_one();
    ASSERT_NE(handler.waiting, nullptr);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kSteps; ++i) ASSERT_EQ(context.run_one(), 1u);
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(took, (kSteps / kStepsPerWake - 2) * kInterval);
    session->close();
  }
  handler.waiting.reset();
  context.run();
}

INSTANTIATE_TEST_SUITE_P(Session, SlowAnswer,
                         ::testing::Values(SlowCase{"POST / HTTP/1.1\r\n", false, false, false},
                                           SlowCase{"POST / HTTP/1.1\r\n", false, true, false},
                                           SlowCase{"POST / HTTP/1.1\r\n", true, true, false},
                                           SlowCase{"HEAD / HTTP/1.1\r\n", true, true, false},
                                           SlowCase{"POST / HTTP/1.0\r\n", false, true, false},
                                           SlowCase{"POST / HTTP/1.1\r\n", false, true, true},
                                           SlowCase{"POST / HTTP/1.1\r\n", true, true, true},
                                           SlowCase{"POST / HTTP/1.0\r\n", false, true, true}));

}  // namespace
}  // namespace ingot
