// Memory that runs out on the engine's thread, at each place where it can: a request or a step is lost, and nothing else.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "collector.h"
#include "engine/engine.h"

namespace {

thread_local int allocations_left = -1;  // -1: as many as are wanted

void* allocate_or_null(std::size_t n) noexcept {
  if (allocations_left == 0) return nullptr;
  if (allocations_left > 0) --allocations_left;
  return std::malloc(n > 0 ? n : 1);
}

void* allocate(std::size_t n) {
  if (void* p = allocate_or_null(n)) return p;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t n) { return allocate(n); }
void* operator new[](std::size_t n) { return allocate(n); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return allocate_or_null(n); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return allocate_or_null(n); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

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

Request request_of(int i, std::shared_ptr<TokenSink> sink) {
  Request request;
  request.prompt.assign(static_cast<size_t>(5 + 7 * i), i);
  request.max_tokens = 12;
  request.client = "a client whose name is too long for a short string";
  request.cache_salt = "and so is its salt, which somebody has chosen";
  request.deadline = Clock::now() + std::chrono::hours(1);
  request.sink = std::move(sink);
  return request;
}

// Steps until there is nothing to do; the n-th allocation in it and all later ones of that step fail. False when there were fewer.
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

TEST(Allocation, WhateverFailsCostsARequestOrAStep) {
  int n_failures = 0, n_lost = 0, n_whole = 0;
  for (const bool overlaps : {false, true}) {
    for (const int at_step : {0, 1, 4, 9}) {
      for (int n = 0; n < 200; ++n) {
        SCOPED_TRACE(n);
        FakeOptions options;
        options.info = {.n_vocab = 100, .n_ctx = 64, .block_size = 4, .n_blocks = 17, .max_batch_tokens = 16, .max_seqs = 4};
        options.info.overlaps = overlaps;
        FakeRunner runner(options);
        Engine engine(runner, {});
        std::vector<std::shared_ptr<Counter>> sinks;
        for (int i = 0; i < 4; ++i) engine.submit(request_of(i, sinks.emplace_back(std::make_shared<Counter>())));
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
        engine.submit(request_of(1, after));
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

}  // namespace
}  // namespace ingot
