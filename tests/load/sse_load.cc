// A load client for fake_server: one epoll loop that opens many streams, knows every token that each must bring, and times them.
// sse_load PORT STREAMS TOKENS [STALLED [RESETS_PER_S]] prints one JSON line. STALLED more connections ask and never read; resets
// are connections that ask and are reset after a random time. Exit code 1 when a checked stream lost, doubled or mixed a token.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "engine/fake_runner.h"

using namespace ingot;
using SteadyClock = std::chrono::steady_clock;

namespace {

constexpr int kVocab = 259;

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

struct Stream {
  int fd = -1;
  std::vector<int32_t> expected;
  size_t n = 0;
  std::string pending;
  SteadyClock::time_point last{};
  bool done = false, wrong = false;
};

class Load {
 public:
  Load(int port, int n_streams, int n_tokens) : port_(port), n_tokens_(n_tokens), epoll_(epoll_create1(0)) {
    streams_.resize(static_cast<size_t>(n_streams));
    for (size_t i = 0; i < streams_.size(); ++i) {
      std::vector<int32_t> history = prompt_of(i);
      for (int k = 0; k < n_tokens; ++k) {
        history.push_back(FakeRunner::next_token(history, i, kVocab));
        streams_[i].expected.push_back(history.back());
      }
    }
  }

  // One that asks and never reads; the others' gaps tell whether it harms.
  void stall(int n) {
    for (int i = 0; i < n; ++i) ask(connect(4096), 1'000'000 + static_cast<size_t>(i));
  }

  int run(double resets_per_s) {
    for (size_t i = 0; i < streams_.size(); ++i) {
      streams_[i].fd = connect(0);
      ask(streams_[i].fd, i);
      epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
      epoll_ctl(epoll_, EPOLL_CTL_ADD, streams_[i].fd, &event);
    }
    size_t n_done = 0;
    std::vector<epoll_event> events(1024);
    while (n_done < streams_.size() && seconds_since(begin_) < 600) {
      const int n = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 2);
      for (int i = 0; i < n; ++i) n_done += read_some(streams_[events[static_cast<size_t>(i)].data.u64]);
      reset_some(resets_per_s);
    }
    return report(n_done);
  }

 private:
  static std::vector<int32_t> prompt_of(size_t i) {
    return {static_cast<int32_t>(i % 256), static_cast<int32_t>(i / 256 % 256), 65};
  }

  int connect(int receive_bytes) const {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_bytes > 0) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{.sin_family = AF_INET,
                        .sin_port = htons(static_cast<uint16_t>(port_)),
                        .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      std::perror("connect");
      std::exit(2);
    }
    return fd;
  }

  void ask(int fd, size_t i) const {
    const auto prompt = prompt_of(i);
    const std::string body =
        fmt::format(R"({{"prompt":[{},{},{}],"seed":{},"max_tokens":{},"stream":true,"return_token_ids":true}})",
                    prompt[0], prompt[1], prompt[2], i, n_tokens_);
    const std::string request = fmt::format(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        "{}\r\n\r\n{}",
        body.size(), body);
    if (write(fd, request.data(), request.size()) != static_cast<ssize_t>(request.size())) std::exit(2);
  }

  // True when the stream is over.
  bool read_some(Stream& s) {
    char bytes[65536];
    const ssize_t n = read(s.fd, bytes, sizeof bytes);
    if (n > 0) {
      s.pending.append(bytes, static_cast<size_t>(n));
      parse(s);
    }
    if (n <= 0 || s.done) {
      epoll_ctl(epoll_, EPOLL_CTL_DEL, s.fd, nullptr);
      close(s.fd);
      return true;
    }
    return false;
  }

  void parse(Stream& s) {
    constexpr std::string_view kIds = "\"token_ids\":[", kDone = "data: [DONE]";
    size_t begin = 0;
    for (size_t end; (end = s.pending.find("\n\n", begin)) != std::string::npos; begin = end + 2) {
      const std::string_view event = std::string_view(s.pending).substr(begin, end - begin);
      s.done |= event.find(kDone) != event.npos;
      const size_t ids = event.find(kIds);
      if (ids == event.npos || event[ids + kIds.size()] == ']') continue;
      const int token = std::atoi(event.data() + ids + kIds.size());
      s.wrong |= s.n >= s.expected.size() || s.expected[s.n] != token;
      ++s.n;
      ++n_events_;
      const auto now = SteadyClock::now();
      if (s.n > 1) gaps_ms_.push_back(std::chrono::duration<float, std::milli>(now - s.last).count());
      s.last = now;
    }
    s.pending.erase(0, begin);
  }

  void reset_some(double per_s) {
    const auto now = SteadyClock::now();
    while (per_s > 0 && seconds_since(begin_) * per_s > static_cast<double>(n_resets_)) {
      const int fd = connect(0);
      if (draw_() % 8 != 0) ask(fd, 2'000'000 + n_resets_);
      doomed_.emplace_back(fd, now + std::chrono::microseconds(draw_() % 300'000));
      ++n_resets_;
    }
    std::erase_if(doomed_, [&](const auto& one) {
      if (one.second > now) return false;
      const linger at_once{.l_onoff = 1, .l_linger = 0};
      setsockopt(one.first, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      close(one.first);
      return true;
    });
  }

  int report(size_t n_done) {
    size_t n_wrong = 0, n_short = 0;
    for (const Stream& s : streams_) {
      n_wrong += s.wrong;
      n_short += s.n != s.expected.size() || !s.done;
    }
    std::sort(gaps_ms_.begin(), gaps_ms_.end());
    const auto at = [&](double share) {
      return gaps_ms_.empty() ? 0.0f : gaps_ms_[static_cast<size_t>(share * static_cast<double>(gaps_ms_.size() - 1))];
    };
    const double s = seconds_since(begin_);
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    fmt::print(
        "{{\"streams\": {}, \"done\": {}, \"wrong\": {}, \"short\": {}, \"events\": {}, \"seconds\": {:.2f}, "
        "\"events_per_s\": {:.0f}, \"gap_p50_ms\": {:.1f}, "
        "\"gap_p99_ms\": {:.1f}, \"gap_max_ms\": {:.1f}, \"resets\": {}, \"client_cpu_s\": {:.2f}}}\n",
        streams_.size(), n_done, n_wrong, n_short, n_events_, s, static_cast<double>(n_events_) / s, at(.5), at(.99),
        at(1), n_resets_,
        static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
            static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    return n_wrong + n_short > 0;
  }

  const int port_, n_tokens_, epoll_;
  const SteadyClock::time_point begin_ = SteadyClock::now();
  std::vector<Stream> streams_;
  std::vector<std::pair<int, SteadyClock::time_point>> doomed_;
  std::vector<float> gaps_ms_;
  size_t n_events_ = 0, n_resets_ = 0;
  std::mt19937 draw_{std::random_device{}()};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: sse_load PORT STREAMS TOKENS [STALLED [RESETS_PER_S]]\n");
    return 2;
  }
  const rlimit files{.rlim_cur = 20000, .rlim_max = 20000};
  setrlimit(RLIMIT_NOFILE, &files);
  Load load(std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]));
  if (argc > 4) load.stall(std::atoi(argv[4]));
  return load.run(argc > 5 ? std::atof(argv[5]) : 0);
}
