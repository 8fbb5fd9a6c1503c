// Host memory that is used again.
#include "backend/host_pool.h"

#include <gtest/gtest.h>

#include <optional>

#include "backend/wrapped.h"

namespace ingot {
namespace {

// Counts what it makes.
struct CountingBackend final : Wrapped {
  CountingBackend() : Wrapped(create_backend({.device = "ref"})) {}
  std::shared_ptr<float[]> host_floats(size_t n) override {
    ++n_made;
    return Wrapped::host_floats(n);
  }
  int n_made = 0;

 private:
  void around(const char*, const Tensor&, const std::function<void()>& call) override { call(); }
};

TEST(HostPool, UsesMemoryAgainThatFits) {
  CountingBackend backend;
  HostPool pool(backend, 1000);
  float* first = pool.take(100).get();           // given back at once
  EXPECT_EQ(pool.take(60).get(), first);         // at most twice as large
  EXPECT_EQ(backend.n_made, 1);
  const auto small = pool.take(40), large = pool.take(101);
  EXPECT_NE(small.get(), first);
  EXPECT_NE(large.get(), first);
  EXPECT_EQ(backend.n_made, 3);
}

TEST(HostPool, OwnersShareNothing) {
  CountingBackend backend;
  HostPool pool(backend, 1000);
  const auto a = pool.take(10), b = pool.take(10);
  a[9] = 1, b[9] = 2;
  EXPECT_EQ(a[9], 1);
}

TEST(HostPool, KeepsTheNewestUpToTheLimit) {
  CountingBackend backend;
  HostPool pool(backend, 250);
  pool.take(300).reset();  // never kept
  auto a = pool.take(100), b = pool.take(100), c = pool.take(100);
  float *kept_b = b.get(), *kept_c = c.get();
  a.reset(), b.reset(), c.reset();  // there is no room for all: a goes
  EXPECT_EQ(backend.n_made, 4);
  const auto d = pool.take(100), e = pool.take(100);
  EXPECT_EQ(d.get(), kept_b);
  EXPECT_EQ(e.get(), kept_c);
  pool.take(100);
  EXPECT_EQ(backend.n_made, 5);
}

TEST(HostPool, OwnersOutliveIt) {
  CountingBackend backend;
  std::optional<HostPool> pool(std::in_place, backend, 1000);
  const auto floats = pool->take(10);
  pool.reset();
  floats[9] = 3;
  EXPECT_EQ(floats[9], 3);
}

}  // namespace
}  // namespace ingot
