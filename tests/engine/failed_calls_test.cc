// Makes each call fail in turn. If memory runs out on the engine's thread, only a request or a step fails. If an
// allocation or a file call fails while a model is loaded, loading throws and leaks neither memory nor a descriptor.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "collector.h"
#include "engine/engine.h"
#include "model/loader.h"

// ThreadSanitizer calls these functions before it has initialized.
#define UNWATCHED __attribute__((no_sanitize("thread")))

namespace {

thread_local int allocations_left = -1;  // -1: no limit
std::atomic<int64_t> n_live{0}, live_bytes{0};

UNWATCHED void* allocate_or_null(std::size_t n) noexcept {
  if (allocations_left == 0) return nullptr;
  if (allocations_left > 0) --allocations_left;
  void* p = std::malloc(n > 0 ? n : 1);
  n_live += p != nullptr;
  live_bytes += static_cast<int64_t>(malloc_usable_size(p));
  return p;
}

UNWATCHED void* allocate(std::size_t n) {
  if (void* p = allocate_or_null(n)) return p;
  throw std::bad_alloc();
}

UNWATCHED void give_back(void* p) {
  if (p != nullptr) --n_live;
  live_bytes -= static_cast<int64_t>(malloc_usable_size(p));
  std::free(p);
}

// The file call of this thread that fails, and its error. Earlier calls are counted.
struct FileFault {
  int calls_left = -1;  // -1: no call fails
  int error = 0;
  bool fired = false;
};
thread_local FileFault file_fault;
thread_local bool no_mapping = false;  // of files: mmap fails

UNWATCHED bool file_call_fails() {
  if (file_fault.calls_left < 0) return false;
  if (file_fault.calls_left-- > 0) return false;
  file_fault.fired = true;
  errno = file_fault.error;
  return true;
}

template <class Function>
UNWATCHED Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

UNWATCHED void* operator new(std::size_t n) { return allocate(n); }
UNWATCHED void* operator new[](std::size_t n) { return allocate(n); }
UNWATCHED void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return allocate_or_null(n); }
UNWATCHED void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return allocate_or_null(n); }
UNWATCHED void operator delete(void* p) noexcept { give_back(p); }
UNWATCHED void operator delete[](void* p) noexcept { give_back(p); }
UNWATCHED void operator delete(void* p, std::size_t) noexcept { give_back(p); }
UNWATCHED void operator delete[](void* p, std::size_t) noexcept { give_back(p); }

// These functions replace the C library's.
extern "C" {
UNWATCHED int open(const char* path, int flags, ...) {
  if (file_call_fails()) return -1;
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return next<int(const char*, int, ...)>("open")(path, flags, mode);
}
UNWATCHED ssize_t read(int fd, void* to, size_t n) {
  return file_call_fails() ? -1 : next<ssize_t(int, void*, size_t)>("read")(fd, to, n);
}
UNWATCHED ssize_t pread(int fd, void* to, size_t n, off_t from) {
  if (file_call_fails()) return -1;
  if (file_fault.calls_left >= 0 && n > 4096) n = 4096;  // a partial read is enough
  return next<ssize_t(int, void*, size_t, off_t)>("pread")(fd, to, n, from);
}
UNWATCHED void* mmap(void* at, size_t n, int protection, int flags, int fd, off_t from) noexcept {
  if (fd >= 0 && no_mapping) {
    errno = ENODEV;
    return MAP_FAILED;
  }
  if (fd >= 0 && file_call_fails()) return MAP_FAILED;
  return next<void*(void*, size_t, int, int, int, off_t)>("mmap")(at, n, protection, flags, fd, from);
}
UNWATCHED int fstat(int fd, struct stat* status) noexcept {
  return file_call_fails() ? -1 : next<int(int, struct stat*)>("fstat")(fd, status);
}
}

namespace ingot {
namespace {

struct Counter final : TokenSink {
  void on_token(const Sampled&) override { ++n_tokens; }
  void on_finish(const Finish& finish) override {
    ++n_finished;
    reason = finish.reason;
  }
  int n_tokens = 0, n_finished = 0;
  FinishReason reason = FinishReason::kStop;
};

Request long_request(int i, std::shared_ptr<TokenSink> sink) {
  Request request;
  request.prompt.assign(static_cast<size_t>(5 + 7 * i), i);
  request.max_tokens = 12;
  request.client = "a client whose name is too long for a short string";
  request.cache_salt = "and so is its salt, which somebody has chosen";
  request.deadline = Clock::now() + std::chrono::hours(1);
  request.sink = std::move(sink);
  return request;
}

// Runs steps until there is nothing to do. In step at_step, the n-th allocation and all later ones fail. Returns false
// if that step has fewer allocations.
bool run_with_failure(Engine& engine, int n, int at_step) {
  bool reached = false;
  for (int step = 0;; ++step) {
    allocations_left = step == at_step ? n : -1;
    const bool more = engine.step();
    reached = reached || (step == at_step && allocations_left == 0);
    allocations_left = -1;
    if (!more) return reached;
  }
}

TEST(FailedCalls, AnAllocationCostsARequestOrAStep) {
  int n_failures = 0, n_lost = 0, n_whole = 0;
  for (const bool overlaps : {false, true}) {
    for (const int at_step : {0, 1, 4, 9}) {
      for (int n = 0; n < 200; ++n) {
        SCOPED_TRACE(n);
        FakeOptions options;
        options.info = {.n_vocab = 100,
                        .n_ctx = 64,
                        .block_size = 4,
                        .pools = {{.n_blocks = 17}},
                        .max_batch_tokens = 16,
                        .max_seqs = 4};
        options.info.overlaps = overlaps;
        FakeRunner runner(options);
        Engine engine(runner, {});
        std::vector<std::shared_ptr<Counter>> sinks;
        for (int i = 0; i < 4; ++i) engine.submit(long_request(i, sinks.emplace_back(std::make_shared<Counter>())));
        const bool reached = run_with_failure(engine, n, at_step);
        for (const auto& sink : sinks) {
          ASSERT_EQ(sink->n_finished, 1);
          ASSERT_TRUE(sink->reason == FinishReason::kLength || (reached && sink->reason == FinishReason::kError));
          (sink->reason == FinishReason::kLength ? n_whole : n_lost) += 1;
          if (sink->reason == FinishReason::kLength) {
            ASSERT_EQ(sink->n_tokens, 12);
          }
        }
        ASSERT_EQ(engine.gauges().blocks_used, 0);
        const auto after = std::make_shared<Counter>();
        engine.submit(long_request(1, after));
        while (engine.step()) {
        }
        ASSERT_EQ(after->reason, FinishReason::kLength);
        ASSERT_EQ(after->n_tokens, 12);
        if (!reached) break;
        ++n_failures;
      }
    }
  }
  EXPECT_GT(n_failures, 20);
  EXPECT_GT(n_lost, 10);
  EXPECT_GT(n_whole, 50);
}

// A submit that runs out of memory frees its place in the queue.
TEST(FailedCalls, AFailedSubmitTakesNoPlaceInTheQueue) {
  FakeRunner runner;
  Engine engine(runner, {.max_queue = 1});
  int n_failed = 0;
  for (int n = 0; n < 200; ++n) {
    SCOPED_TRACE(n);
    Request request = long_request(1, std::make_shared<Counter>());
    request.stop_tokens = {1, 2, 3};
    request.min_tokens = 2;
    std::optional<RequestId> id;
    allocations_left = n;
    try {
      id = engine.try_submit(std::move(request));
    } catch (const std::bad_alloc&) {
      ++n_failed;
    }
    const bool reached = allocations_left == 0;
    allocations_left = -1;
    if (!reached) {
      EXPECT_TRUE(id) << "the queue is full of requests that were never in it";
      break;
    }
    while (engine.step()) {
    }
  }
  EXPECT_GT(n_failed, 3);
}

// A waiting request uses memory for its prompt only, even if its output may become long.
TEST(FailedCalls, AQueuedRequestTakesMemoryForItsPromptOnly) {
  FakeOptions options;
  options.info.n_ctx = 1 << 20;
  options.info.pools[0].n_blocks = 1 << 16;
  options.info.max_seqs = 1;
  FakeRunner runner(options);
  Engine engine(runner);
  constexpr int kRequests = 100;
  const auto sink = std::make_shared<Counter>();
  const int64_t before = live_bytes;
  for (int i = 0; i < kRequests; ++i) {
    Request request = long_request(0, sink);
    request.max_tokens = -1;
    engine.submit(std::move(request));
  }
  EXPECT_LT(live_bytes - before, kRequests * 4096);
  engine.step();  // one of the requests is admitted now
  EXPECT_LT(live_bytes - before, kRequests * 4096 + (6 << 20));
  EXPECT_EQ(engine.gauges().n_waiting, kRequests - 1);
}

int open_descriptors() {
  int n = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++n;
  closedir(folder);
  return n;
}

// Loads a model and asks for a few tokens, to check that the model works.
std::vector<int32_t> load_and_run(const std::string& path) {
  const LoadedModel model =
      load_model(open_checkpoint(path), {.backend = {.device = "cpu", .n_threads = 1}, .n_ctx = 64}, nullptr);
  allocations_left = file_fault.calls_left = -1;  // the injected failure is over
  Engine engine(*model.runner, {});
  const auto sink = std::make_shared<Collector>();
  engine.submit(
      {.prompt = {1, 2, 3}, .sampling = {.temperature = 0}, .max_tokens = 4, .ignore_eos = true, .sink = sink});
  while (engine.step()) {
  }
  return sink->tokens;
}

std::vector<std::string> two_kinds() {
  const std::string data = INGOT_TEST_DATA;
  return {data + "/models/llama_q4_0.gguf", data + "/hf/llama"};
}

TEST(FailedCalls, AnyCallForAFileWhileLoading) {
  set_log_level(LogLevel::kOff);
  for (const std::string& path : two_kinds()) {
    const std::vector<int32_t> expected = load_and_run(path);
    const int n_open = open_descriptors();
    for (const bool mapped : {true, false}) {
      int n_failed = 0, n_borne = 0;
      for (const int error : {EIO, EMFILE, ENOMEM, EAGAIN, EINTR}) {
        for (int k = 0;; ++k) {
          SCOPED_TRACE(fmt::format("{}, {}: call {}: {}", path, mapped ? "mapped" : "read", k, std::strerror(error)));
          no_mapping = !mapped;
          file_fault = {.calls_left = k, .error = error};
          try {
            ASSERT_EQ(load_and_run(path), expected);
            n_borne += file_fault.fired;
          } catch (const Error& e) {
            ++n_failed;
            ASSERT_TRUE(file_fault.fired) << e.what();
            ASSERT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
          }
          const bool fired = file_fault.fired;
          file_fault = {};
          no_mapping = false;
          ASSERT_EQ(open_descriptors(), n_open);
          if (!fired) break;
        }
      }
      EXPECT_GE(n_failed, 6);
      EXPECT_GT(n_borne, 0);  // an interrupted call is repeated, and a file that cannot be mapped is read
    }
  }
}

// With a GGUF file without a template, because the destructor of the JSON library allocates.
TEST(FailedCalls, AnyAllocationWhileLoading) {
  Random random;
  SCOPED_TRACE(random.seed());
  set_log_level(LogLevel::kOff);
  const std::string path = two_kinds()[0];
  const std::vector<int32_t> expected = load_and_run(path);  // creates the objects that are created only once
  const int n_open = open_descriptors();
  int n_failed = 0;
  // Each of the first hundred allocations, then fewer and fewer.
  for (int n = 0;; n += n < 100 ? 1 : random.integer(1, n / 8)) {
    SCOPED_TRACE(fmt::format("allocation {}", n));
    const int64_t before = n_live;
    bool failed = true;
    try {
      allocations_left = n;
      const std::vector<int32_t> tokens = load_and_run(path);
      failed = false;
      EXPECT_EQ(tokens, expected);
    } catch (const std::bad_alloc&) {
    } catch (const Error&) {
    }
    allocations_left = -1;
    n_failed += failed;
    ASSERT_EQ(n_live - before, 0);
    ASSERT_EQ(open_descriptors(), n_open);
    if (!failed) break;
  }
  EXPECT_GT(n_failed, 100);
}

}  // namespace
}  // namespace ingot
