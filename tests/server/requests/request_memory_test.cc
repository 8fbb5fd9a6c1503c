// The memory of requests: the budget that bounds it, the estimate of parsed JSON, and requests during which an
// allocation fails.
#include "server/requests/request_memory.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define INGOT_HAS_LEAK_CHECK 1
#elif defined(__has_feature)
#define INGOT_HAS_LEAK_CHECK __has_feature(address_sanitizer)
#else
#define INGOT_HAS_LEAK_CHECK 0
#endif
#if INGOT_HAS_LEAK_CHECK
#include <sanitizer/lsan_interface.h>
#endif

#include "base/json.h"
#include "server/http/server.h"
#include "server/requests/fields.h"
#include "server/rig.h"
#include "test_seed.h"
#include "text/grammar/masks/model_grammars.h"

namespace {

// Allocations of all threads but the test's own.
thread_local bool is_allocator_of_test = false;
std::atomic<long> n_allocations{0}, fails_from{-1}, fails_until{-1};  // -1: no allocation fails
thread_local int64_t allocated_here = 0;                              // live bytes of this thread's own allocations

void* allocate_in_test(std::size_t n) noexcept {
  if (!is_allocator_of_test) {
    const long call = n_allocations++;
    if (call >= fails_from && call < fails_until) return nullptr;
  }
  auto* memory = static_cast<std::size_t*>(std::malloc(n + 16));
  if (memory == nullptr) return nullptr;
  *memory = n;
#if INGOT_HAS_LEAK_CHECK
  // The constructors of the JSON library leak what they have built if memory runs out.
  if (fails_from >= 0) __lsan_ignore_object(memory);
#endif
  allocated_here += static_cast<int64_t>(n);
  return reinterpret_cast<char*>(memory) + 16;
}

void free_in_test(void* memory) noexcept {
  if (memory == nullptr) return;
  char* block = static_cast<char*>(memory) - 16;
  allocated_here -= static_cast<int64_t>(*reinterpret_cast<std::size_t*>(block));
  std::free(block);
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return allocate_in_test(n); }
[[gnu::noinline]] void* operator new(std::size_t n) {
  if (void* memory = allocate_in_test(n)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new[](std::size_t n) { return operator new(n); }
[[gnu::noinline]] void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return allocate_in_test(n); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { free_in_test(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { free_in_test(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { free_in_test(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { free_in_test(memory); }

namespace ingot {
namespace {

using nlohmann::json;

// ---- the budget ----

TEST(RequestMemory, PartsNeverExceedTheBudget) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(seed);
  const auto budget = std::make_shared<MemoryBudget>(1000);
  std::atomic<int64_t> held{0};
  std::atomic<bool> is_exceeded{false};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 rng(seed + t);
      for (int round = 0; round < 300; ++round) {
        MemoryBudget::Part part(budget, MemoryBudget::Use::kConnection);
        for (int i = 0; i < 20; ++i) {
          const auto before = static_cast<int64_t>(part.bytes()), wanted = static_cast<int64_t>(rng() % 700);
          if (wanted < before) held += wanted - before;  // before the bytes are free
          if (part.set(static_cast<size_t>(wanted)) && wanted > before) held += wanted - before;
          if (held > 1000) is_exceeded = true;
        }
        held -= static_cast<int64_t>(part.bytes());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(is_exceeded);
  EXPECT_EQ(budget->used(), 0u);
  EXPECT_GT(budget->take_given_back(), 0u);
  EXPECT_EQ(budget->take_given_back(), 0u);
}

TEST(RequestMemory, RequestsLeaveRoomForConnections) {
  const auto budget = std::make_shared<MemoryBudget>(800);
  MemoryBudget::Part request(budget), connection(budget, MemoryBudget::Use::kConnection);
  EXPECT_FALSE(request.set(701));
  EXPECT_TRUE(request.set(700));
  EXPECT_TRUE(connection.set(100));
  EXPECT_FALSE(connection.set(101));
  budget->set_limit(400);
  EXPECT_FALSE(request.set(701));
  EXPECT_TRUE(request.set(10));
}

json drawn_body(std::mt19937& rng, int depth) {
  switch (rng() % (depth > 0 ? 6 : 4)) {
    case 0: return nullptr;
    case 1: return rng();
    case 2: return std::string(rng() % 60, "ab\"\\\n,:[{"[rng() % 9]);
    case 3: return rng() % 2 == 0 ? json::array() : json::object();
    default: {
      json body = rng() % 2 == 0 ? json::array() : json::object();
      for (uint32_t i = rng() % 9; i > 0; --i) {
        json child = drawn_body(rng, depth - 1);
        body.is_array() ? body.push_back(child) : void(body[std::string(rng() % 30, 'k') + std::to_string(i)] = child);
      }
      return body;
    }
  }
}

// The estimate is at least what the value and a copy take.
TEST(RequestMemory, TheEstimateOfJsonIsEnough) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  std::vector<std::string> texts = {R"({"messages":[)" +
                                        [] {
                                          std::string many;
                                          for (int i = 0; i < 5000; ++i) many += "{},";
                                          return many + "{}]}";
                                        }(),
                                    R"({"a":)" + std::string(60, '[') + std::string(60, ']') + "}"};
  for (int i = 0; i < 500; ++i) texts.push_back(json{{"body", drawn_body(rng, 5)}}.dump());
  for (const std::string& text : texts) {
    const int64_t before = allocated_here;
    const JsonValue value = parse_request_json(text);
    const JsonValue copy = value;
    ASSERT_LE(allocated_here - before, static_cast<int64_t>(json_bytes(text))) << text.substr(0, 300);
    ASSERT_LE(json_bytes(text), 400 * text.size() + 200) << "far too much";
  }
}

// ---- requests on a socket ----

class Line {
 public:
  explicit Line(const std::string& address) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  ~Line() { ::close(fd_); }
  Line(const Line&) = delete;
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  // All bytes until the server closes the connection.
  std::string read_all() {
    std::string all;
    char some[4096];
    for (ssize_t n; (n = ::recv(fd_, some, sizeof some, 0)) != 0;) {
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno != ECONNRESET) ADD_FAILURE() << "the answer never ended";
      if (n < 0) break;
      all.append(some, static_cast<size_t>(n));
    }
    return all;
  }

 private:
  const int fd_;
};

std::string head_of_post(const std::string& path, size_t n) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
      "{}\r\n\r\n",
      path, n);
}

int status_in(const std::string& answer) { return answer.size() > 12 ? std::stoi(answer.substr(9, 3)) : 0; }

struct SocketRig {
  explicit SocketRig(const std::shared_ptr<MemoryBudget>& memory = std::make_shared<MemoryBudget>())
      : memory_(memory),
        rig({.info = {.n_vocab = 259,
                      .n_ctx = 8192,
                      .block_size = 64,
                      .pools = {{.n_blocks = 256}},
                      .max_batch_tokens = 4096,
                      .max_seqs = 4}},
            64, {.memory = memory}),
        server({.port = 0,
                .write_deadline = std::chrono::seconds(5),
                .memory = memory,
                .ping_interval = std::chrono::milliseconds(20)},
               rig.app) {
    is_allocator_of_test = true;
    server.start();
  }
  ~SocketRig() { is_allocator_of_test = false; }
  // Until all requests have given their memory back.
  void wait_for_memory() {
    while (memory_->used() > 0) std::this_thread::yield();
  }

  // The whole answer. Waits until the request has given its memory back.
  std::string ask(const std::string& path, const std::string& body) {
    std::string answer = post(path, body);
    wait_for_memory();
    return answer;
  }
  std::string post(const std::string& path, const std::string& body) {
    Line line(server.address());
    line.send(head_of_post(path, body.size()) + body);
    return line.read_all();
  }

  const std::shared_ptr<MemoryBudget> memory_;
  Rig rig;
  HttpServer server;
};

const std::string kSmallBody = R"({"prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": true})";

TEST(RequestMemory, BodiesUnderWayShareABudget) {
  const auto memory = std::make_shared<MemoryBudget>(8 << 20);
  SocketRig rig(memory);
  EXPECT_EQ(status_in(rig.ask("/v1/completions", kSmallBody)), 200);
  EXPECT_EQ(status_in(rig.ask("/v1/completions", std::string(4 << 20, ' ') + kSmallBody)), 413) << "too large alone";
  std::vector<std::unique_ptr<Line>> slow;
  for (int i = 0; i < 16; ++i) {  // each sends half a MiB of one
    slow.push_back(std::make_unique<Line>(rig.server.address()));
    slow.back()->send(head_of_post("/v1/completions", 1 << 20) + std::string(1 << 19, ' '));
  }
  while (memory->used() < (5 << 20)) std::this_thread::yield();
  int n_refused = 0;
  for (int i = 0; i < 16; ++i)
    n_refused += status_in(rig.post("/v1/completions", std::string(1 << 20, ' ') + kSmallBody)) == 503;
  EXPECT_EQ(n_refused, 16);
  EXPECT_LE(memory->used(), memory->limit());
  slow.clear();
  rig.wait_for_memory();
  EXPECT_EQ(status_in(rig.post("/v1/completions", std::string(1 << 20, ' ') + kSmallBody)), 200);
}

TEST(RequestMemory, ParsedBodiesAndAnswersShareABudget) {
  const auto memory = std::make_shared<MemoryBudget>(16 << 20);
  SocketRig rig(memory);
  std::string values = R"({"messages":[)";
  for (int i = 0; i < 300'000; ++i) values += "{},";
  EXPECT_EQ(status_in(rig.ask("/v1/chat/completions", values + "{}]}")), 413) << "a small body with many values";
  const std::string text(500'000, 'a');
  EXPECT_EQ(status_in(rig.ask("/tokenize", R"({"content":")" + text + "\"}")), 200);
  EXPECT_EQ(
      status_in(rig.ask("/tokenize", R"({"with_pieces":true,"return_token_strs":true,"content":")" + text + "\"}")),
      413)
      << "a small body with a large answer";
  std::string ids = R"({"tokens":[)";
  for (int i = 0; i < 100'000; ++i) ids += "97,";
  EXPECT_EQ(status_in(rig.ask("/detokenize", ids + "97]}")), 200);
  rig.wait_for_memory();
  EXPECT_EQ(status_in(rig.ask("/v1/completions", kSmallBody)), 200);
}

// ---- failing allocations ----

// Lets allocation `at` of this thread fail in call(). Returns whether call() has reached it and thrown.
template <class F>
bool fails_at(long at, const F& call) {
  n_allocations = 0;
  fails_until = at + 1;
  fails_from = at;
  bool has_thrown = false;
  try {
    call();
  } catch (const std::bad_alloc&) {
    has_thrown = true;
  }
  fails_from = fails_until = -1;
  return has_thrown;
}

// A machine whose allocation failed may be half changed. Nobody uses such a machine again. The vocabulary, which all
// machines share, stays right.
TEST(RequestMemory, AFailedAllocationEndsTheUseOfAGrammar) {
  std::vector<std::string> pieces;
  for (int c = ' '; c <= '~'; ++c) pieces.emplace_back(1, static_cast<char>(c));
  for (const char* text : {R"({")", R"(": )", R"(", ")", "12", "word", "}}"}) pieces.emplace_back(text);
  const GrammarText texts[] = {
      {GrammarKind::kSchema, R"({"properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}})"},
      {GrammarKind::kGrammar, "root ::= word root | word \nword ::= [a-z{\":0-9]+ [ }]"},
  };
  const auto answer = [&](Matcher& matcher) {
    return std::ranges::all_of(std::string_view(R"({"a": 12})"),
                               [&](char c) { return matcher.mask() && matcher.accept(c - ' '); });
  };
  for (const GrammarText& text : texts) {
    long at = 0;
    for (bool has_thrown = true; has_thrown; at += at < 64 ? 1 : 5) {
      const auto vocabulary = std::make_shared<GrammarVocabulary>(pieces, std::vector<int32_t>{});
      const auto constraint = std::make_shared<Constraint>(compile(text), vocabulary);
      Matcher matcher(constraint), other(constraint);
      bool is_right = false;
      has_thrown = fails_at(at, [&] { is_right = answer(matcher); });
      ASSERT_TRUE(has_thrown || is_right) << at;
      if (constraint->is_worn()) {
        ASSERT_THROW(other.mask(), std::bad_alloc) << at;
      } else {  // no allocation of the machine has failed
        ASSERT_TRUE(answer(other)) << at;
      }
      Matcher fresh(std::make_shared<Constraint>(compile(text), vocabulary));
      ASSERT_TRUE(answer(fresh)) << at;
    }
    EXPECT_GT(at, 50);
  }
}

struct SweptRequest {
  const char* path;
  const char* body;
};

constexpr SweptRequest kSwept[] = {
    {"/v1/completions", R"({"prompt": "abc", "max_tokens": 6, "ignore_eos": true, "logprobs": 2, "stop": ["zzz"]})"},
    {"/v1/completions", R"({"prompt": "abc", "max_tokens": 6, "ignore_eos": true, "stream": true})"},
    {"/v1/chat/completions",
     R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "u"}]}],
         "max_tokens": 6, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
         "properties": {"a": {"type": "array", "items": {"enum": ["x", 1, null]}}}}}}]})"},
    {"/v1/chat/completions",
     R"({"messages": [{"role": "user", "content": "u"}], "max_tokens": 6, "stream": true, "response_format": {"type":
         "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"a": {"type":
         "integer"}}, "required": ["a"]}}}})"},
    {"/v1/messages", R"({"messages": [{"role": "user", "content": "u"}], "max_tokens": 6})"},
    {"/v1/responses", R"({"input": "u", "max_output_tokens": 20})"},
    {"/api/chat", R"({"messages": [{"role": "user", "content": "u"}], "options": {"num_predict": 6}})"},
    {"/tokenize", R"({"content": "some text", "with_pieces": true})"},
    {"/v1/chat/completions", R"({"messages":[{},{},{},{},{},{},{},{},{},{},{},{},[[{"a":[]}]],{},{},{},{},{},{},{}]})"},
};

class FailingAllocations : public ::testing::TestWithParam<int> {};  // how many allocations fail in a row

// An allocation costs the request at most: an error 503, or the end of the connection if there is no memory for the
// error. The next request works.
TEST_P(FailingAllocations, CostARequestAtMost) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  SocketRig rig;
  std::map<int, int> counts;
  for (const SweptRequest& request : kSwept) {
    const int right = status_in(rig.post(request.path, request.body));
    n_allocations = 0;
    rig.post(request.path, request.body);
    const long n_calls = n_allocations;
    for (int i = 0; i < 60; ++i) {
      const long at = static_cast<long>(rng() % static_cast<uint32_t>(n_calls));
      SCOPED_TRACE(fmt::format("{}: allocation {} of {}", request.path, at, n_calls));
      n_allocations = 0;
      fails_until = at + GetParam();
      fails_from = at;
      const std::string answer = rig.post(request.path, request.body);
      fails_from = fails_until = -1;
      const int status = status_in(answer);
      ++counts[status];
      EXPECT_TRUE(status == 0 || status == 503 || status == right) << answer;
      ASSERT_EQ(status_in(rig.post("/v1/completions", kSmallBody)), 200);
    }
  }
  if (GetParam() == 1) {  // there is memory for the error
    EXPECT_GT(counts[503], 0);
  }
  EXPECT_TRUE(rig.rig.wait_idle());
  while (rig.rig.app.n_active() > 0) std::this_thread::yield();
}

INSTANTIATE_TEST_SUITE_P(RequestMemory, FailingAllocations, ::testing::Values(1, 20));

}  // namespace
}  // namespace ingot
