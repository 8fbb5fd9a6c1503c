// A load client for fake_server: one epoll loop that keeps many requests in flight, compares their tokens with the
// known ones, and measures their times. Prints one JSON line. Exits with code 1 if a checked answer lost, doubled,
// reordered or mixed a token.
//
// Requests are sent all at once, --concurrency at a time, or at random times (--rate). Each of the --tenants has a
// cache salt and prompts with a common prefix. Further connections are not checked: --stalled ones send a request and
// never read, --idle ones never send a request, --slow ones send one byte of their headers a second, and --resets per
// second are reset at a random time.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
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

struct Options {
  int port = 0, n_requests = 100, concurrency = 0, n_tokens = 100, n_prompt = 3, n_tenants = 0;
  int n_stalled = 0, n_idle = 0, n_slow = 0;
  double rate = 0, resets = 0, seconds = 600, pace_ms = 0;
};

double ms_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - begin).count();
}

// One checked request.
struct Stream {
  int fd = -1;
  std::vector<int32_t> expected;
  size_t n = 0;
  std::string pending;
  SteadyClock::time_point begun{}, last{};
  int status = 0;
  bool has_begun = false, done = false, wrong = false;
};

struct Times {
  std::vector<float> ms;
  float at(double share) {
    std::sort(ms.begin(), ms.end());
    return ms.empty() ? 0.0f : ms[static_cast<size_t>(share * static_cast<double>(ms.size() - 1))];
  }
};

class Load {
 public:
  explicit Load(const Options& o) : o_(o), epoll_(epoll_create1(0)), streams_(static_cast<size_t>(o.n_requests)) {
    for (size_t i = 0; i < streams_.size(); ++i) {
      std::vector<int32_t> history = prompt_of(i);
      for (int k = 0; k < o_.n_tokens; ++k) {
        history.push_back(FakeRunner::next_token(history, i, kVocab));
        streams_[i].expected.push_back(history.back());
      }
    }
  }

  int run() {
    for (int i = 0; i < o_.n_stalled; ++i) ask(connect(4096), 1'000'000 + static_cast<size_t>(i), 4000);
    for (int i = 0; i < o_.n_idle; ++i) idle_.push_back(connect(0));
    for (int i = 0; i < o_.n_slow; ++i) slow_.push_back(connect(0));
    begin_ = SteadyClock::now();
    std::vector<epoll_event> events(1024);
    while (n_over_ < streams_.size() && ms_since(begin_) < o_.seconds * 1e3) {
      while (n_begun_ < streams_.size() && may_begin()) begin(n_begun_++);
      const int n = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), o_.rate > 0 ? 1 : 2);
      for (int i = 0; i < n; ++i) read_some(streams_[events[static_cast<size_t>(i)].data.u64]);
      reset_some();
      dribble();
    }
    return report();
  }

 private:
  // All prompts of a tenant share a prefix that no other tenant has. The last two tokens depend on the request.
  std::vector<int32_t> prompt_of(size_t i) const {
    std::vector<int32_t> prompt;
    const size_t tenant = o_.n_tenants > 0 ? i % static_cast<size_t>(o_.n_tenants) : i;
    std::minstd_rand draw(static_cast<unsigned>(tenant * 7919 + 1));
    while (static_cast<int>(prompt.size()) < o_.n_prompt - 2) prompt.push_back(static_cast<int32_t>(draw() % 256));
    prompt.push_back(static_cast<int32_t>(i % 256));
    prompt.push_back(static_cast<int32_t>(i / 256 % 256));
    return prompt;
  }

  int connect(int receive_bytes) const {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_bytes > 0) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{.sin_family = AF_INET,
                        .sin_port = htons(static_cast<uint16_t>(o_.port)),
                        .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      std::perror("connect");
      std::exit(2);
    }
    return fd;
  }

  void ask(int fd, size_t i, int n_tokens, double share = 1) const {
    std::string body = fmt::format(
        R"({{"prompt":[{}],"seed":{},"max_tokens":{},"stream":true,"ignore_eos":true,"return_token_ids":true)",
        fmt::join(prompt_of(i), ","), i, n_tokens);
    if (o_.n_tenants > 0) body += fmt::format(R"(,"cache_salt":"{}")", i % static_cast<size_t>(o_.n_tenants));
    body += '}';
    std::string request = fmt::format(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        "{}\r\n\r\n{}",
        body.size(), body);
    request.resize(static_cast<size_t>(static_cast<double>(request.size()) * share));
    if (write(fd, request.data(), request.size()) != static_cast<ssize_t>(request.size())) std::exit(2);
  }

  bool may_begin() {
    if (o_.rate > 0) {
      if (ms_since(begin_) < next_ms_) return false;
      next_ms_ += std::exponential_distribution<double>(o_.rate)(draw_) * 1e3;
      return true;
    }
    return o_.concurrency == 0 || n_begun_ - n_over_ < static_cast<size_t>(o_.concurrency);
  }

  void begin(size_t i) {
    Stream& s = streams_[i];
    s.fd = connect(0);
    s.begun = SteadyClock::now();
    ask(s.fd, i, o_.n_tokens);
    epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, s.fd, &event);
  }

  void read_some(Stream& s) {
    char bytes[65536];
    const ssize_t n = read(s.fd, bytes, sizeof bytes);
    if (n > 0) {
      s.pending.append(bytes, static_cast<size_t>(n));
      if (s.status == 0 && s.pending.size() >= 12) {
        s.status = std::atoi(s.pending.c_str() + 9);
        if (s.status != 200) refused_.ms.push_back(static_cast<float>(ms_since(s.begun)));
      }
      if (s.status == 200) parse(s);
    }
    if (n > 0 && !s.done && (s.status == 200 || s.status == 0)) return;
    if (s.done) whole_.ms.push_back(static_cast<float>(ms_since(s.begun)));
    epoll_ctl(epoll_, EPOLL_CTL_DEL, s.fd, nullptr);
    close(s.fd);
    ++n_over_;
  }

  void parse(Stream& s) {
    constexpr std::string_view kIds = "\"token_ids\":[", kDone = "data: [DONE]";
    size_t begin = 0;
    for (size_t end; (end = s.pending.find("\n\n", begin)) != std::string::npos; begin = end + 2) {
      const std::string_view event = std::string_view(s.pending).substr(begin, end - begin);
      s.done |= event.find(kDone) != event.npos;
      const size_t ids = event.find(kIds);
      if (ids == event.npos || event[ids + kIds.size()] == ']') continue;
      const int n_tokens = take_tokens(s, event.data() + ids + kIds.size());
      const auto now = SteadyClock::now();
      const bool is_first = !std::exchange(s.has_begun, true);
      if (is_first) first_.ms.push_back(static_cast<float>(ms_since(s.begun)));
      // Tokens of one character arrive together, so their steps do not count as delay.
      else gaps_.ms.push_back(static_cast<float>(ms_since(s.last) - (n_tokens - 1) * o_.pace_ms));
      s.last = now;
    }
    s.pending.erase(0, begin);
  }

  // Parses "12,7]...". Tokens arrive together if only together they complete a character. Returns their number.
  int take_tokens(Stream& s, const char* ids) {
    for (int n = 1;; ++n) {
      char* end = nullptr;
      const long token = std::strtol(ids, &end, 10);
      s.wrong |= s.n >= s.expected.size() || s.expected[s.n] != token;
      ++s.n;
      ++n_tokens_;
      if (*end != ',') return n;
      ids = end + 1;
    }
  }

  // Opens connections that are reset at a random time: before a request, within a request, or during the answer.
  void reset_some() {
    const auto now = SteadyClock::now();
    while (o_.resets > 0 && ms_since(begin_) * o_.resets > static_cast<double>(n_resets_) * 1e3) {
      const int fd = connect(0);
      const unsigned phase = draw_() % 8;
      if (phase > 0) ask(fd, 2'000'000 + n_resets_, 200, phase == 1 ? 0.7 : 1);
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

  // Sends a byte on each slow connection. Replaces the connections that the server has closed.
  void dribble() {
    if (ms_since(dribbled_) < 1000) return;
    dribbled_ = SteadyClock::now();
    for (std::vector<int>* fds : {&slow_, &idle_}) {
      for (int& fd : *fds) {
        char byte;
        if (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN) continue;
        close(fd);
        fd = connect(0);
        ++n_let_go_;
      }
    }
    for (const int fd : slow_) (void)!send(fd, "G", 1, MSG_NOSIGNAL);
  }

  int report() {
    size_t n_wrong = 0, n_short = 0;
    for (const Stream& s : streams_) {
      n_wrong += s.wrong;
      n_short += s.status == 200 && (s.n != s.expected.size() || !s.done);
    }
    const double s = ms_since(begin_) / 1e3;
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const auto cpu_s = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    fmt::print(
        "{{\"requests\": {}, \"done\": {}, \"refused\": {}, \"wrong\": {}, \"short\": {}, \"tokens\": {}, \"seconds\": "
        "{:.2f}, "
        "\"tokens_per_s\": {:.0f}, \"done_per_s\": {:.1f}, \"gap_p50_ms\": {:.1f}, \"gap_p99_ms\": {:.1f}, "
        "\"gap_max_ms\": {:.1f}, "
        "\"first_p50_ms\": {:.1f}, \"first_p99_ms\": {:.1f}, \"whole_p99_ms\": {:.1f}, \"refused_p99_ms\": {:.1f}, "
        "\"resets\": {}, \"let_go\": {}, "
        "\"client_cpu_s\": {:.2f}}}\n",
        streams_.size(), whole_.ms.size(), refused_.ms.size(), n_wrong, n_short, n_tokens_, s,
        static_cast<double>(n_tokens_) / s, static_cast<double>(whole_.ms.size()) / s, gaps_.at(.5), gaps_.at(.99),
        gaps_.at(1), first_.at(.5), first_.at(.99), whole_.at(.99), refused_.at(.99), n_resets_, n_let_go_,
        cpu_s(usage.ru_utime) + cpu_s(usage.ru_stime));
    return n_wrong + n_short > 0 || n_over_ < streams_.size();
  }

  const Options o_;
  const int epoll_;
  SteadyClock::time_point begin_{}, dribbled_{};
  double next_ms_ = 0;
  std::vector<Stream> streams_;
  std::vector<std::pair<int, SteadyClock::time_point>> doomed_;
  std::vector<int> slow_, idle_;
  size_t n_let_go_ = 0;
  Times gaps_, first_, whole_, refused_;
  size_t n_begun_ = 0, n_over_ = 0, n_tokens_ = 0, n_resets_ = 0;
  std::mt19937 draw_{std::random_device{}()};
};

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Checked load on fake_server");
  app.add_option("--port", o.port)->required();
  app.add_option("--requests", o.n_requests)->check(CLI::Range(1, 1'000'000));
  app.add_option("--concurrency", o.concurrency, "0: all at once");
  app.add_option("--rate", o.rate, "arrivals a second");
  app.add_option("--tokens", o.n_tokens);
  app.add_option("--prompt", o.n_prompt)->check(CLI::Range(3, 1 << 16));
  app.add_option("--tenants", o.n_tenants);
  app.add_option("--stalled", o.n_stalled);
  app.add_option("--idle", o.n_idle);
  app.add_option("--slow", o.n_slow);
  app.add_option("--resets", o.resets, "a second");
  app.add_option("--seconds", o.seconds, "gives up after");
  app.add_option("--pace", o.pace_ms, "time of a step, in ms: gaps are those of events of one token");
  CLI11_PARSE(app, argc, argv);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  return Load(o).run();
}
