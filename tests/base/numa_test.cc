#include "base/numa.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <random>
#include <string>

#include "base/error.h"
#include "base/system.h"
#include "base/threads.h"
#include "captured_log.h"
#include "test_seed.h"

namespace ingot {
namespace {

MemoryNode node(int id, std::vector<int> cpus) {
  const int n_cores = static_cast<int>(cpus.size());
  return {id, std::move(cpus), n_cores};
}

std::string refusal(const std::string& name, std::vector<MemoryNode> nodes) {
  try {
    choose_nodes(name, std::move(nodes), 0);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(ChooseNodes, ByName) {
  const std::vector<MemoryNode> two = {node(0, {0, 1}), node(2, {4, 5})};
  EXPECT_TRUE(choose_nodes("off", two, 0).empty());
  EXPECT_EQ(choose_nodes("distribute", two, 0).size(), 2u);
  for (const auto& [cpu, id] : {std::pair{0, 0}, {1, 0}, {4, 2}, {5, 2}, {-1, 0}}) {
    const std::vector<MemoryNode> one = choose_nodes("isolate", two, cpu);
    ASSERT_EQ(one.size(), 1u);
    EXPECT_EQ(one[0].id, id) << "on CPU " << cpu;
  }
}

TEST(ChooseNodes, SaysWhyNot) {
  for (const std::string name : {"distribute", "isolate"}) {
    EXPECT_NE(refusal(name, {node(3, {0, 1})}).find("are on node 3"), std::string::npos) << name;
    EXPECT_NE(refusal(name, {}).find("does not list"), std::string::npos) << name;
  }
  EXPECT_NE(refusal("numactl", {node(0, {0}), node(1, {1})}).find("'numactl'"), std::string::npos);
  EXPECT_EQ(refusal("off", {}), "");
}

// Each node gets threads in proportion to its cores, and the threads of a node have consecutive numbers.
TEST(NodeOf, DealsThreadsByCores) {
  const std::vector<MemoryNode> nodes = {node(0, {0, 1}), node(1, {2}), node(4, {3, 4, 5})};
  const auto dealt = [&](int n_threads) {
    std::string ids;
    for (int thread = 0; thread < n_threads; ++thread) ids += std::to_string(node_of(thread, n_threads, nodes).id);
    return ids;
  };
  EXPECT_EQ(dealt(6), "001444");
  EXPECT_EQ(dealt(12), "000011444444");
  EXPECT_EQ(dealt(3), "014");
  EXPECT_EQ(dealt(2), "04");
  EXPECT_EQ(dealt(1), "0");
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 100; ++round) {
    const int n_threads = 1 + static_cast<int>(random() % 64);
    std::vector<MemoryNode> some;
    for (int id = 0; id <= static_cast<int>(random() % 8); ++id)
      some.push_back(node(id, std::vector<int>(1 + random() % 9)));
    for (int thread = 1; thread < n_threads; ++thread)
      EXPECT_LE(node_of(thread - 1, n_threads, some).id, node_of(thread, n_threads, some).id);
  }
}

TEST(ThreadPool, CallsEachThreadOnce) {
  for (const int n_threads : {1, 2, 3, 8}) {
    ThreadPool pool(n_threads);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::atomic<int>> calls(n_threads);
      pool.on_each_thread([&](int thread) { ++calls[thread]; });
      for (int thread = 0; thread < n_threads; ++thread) EXPECT_EQ(calls[thread], 1) << thread << " of " << n_threads;
    }
  }
}

#if defined(__linux__)

std::vector<int> cpus_of_this_thread() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {};
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

// Runs `body` on a new thread, which binds itself, so that the test's own thread stays unbound.
template <class F>
void on_a_thread(F&& body) {
  std::thread(std::forward<F>(body)).join();
}

// Treats each CPU of this machine as a memory node.
std::vector<MemoryNode> nodes_of_one_cpu() {
  std::vector<MemoryNode> nodes;
  for (const int cpu : cpus_of_this_thread()) nodes.push_back(node(cpu, {cpu}));
  return nodes;
}

TEST(ThreadPool, BindsThreadsToTheirNodes) {
  const std::vector<MemoryNode> nodes = nodes_of_one_cpu();
  on_a_thread([&] {
    ThreadPool pool(0, start_std_thread, nodes);
    EXPECT_EQ(pool.size(), std::min(default_threads(), static_cast<int>(nodes.size())));
    const auto expect_bound = [&] {
      pool.on_each_thread([&](int thread) {
        EXPECT_EQ(cpus_of_this_thread(), node_of(thread, pool.size(), nodes).cpus) << thread;
      });
    };
    expect_bound();
    if (pool.size() == 1) return;        // the next thread would not become the caller of a loop
    on_a_thread([&] { EXPECT_TRUE(run_on_cpus(nodes.back().cpus)); expect_bound(); });  // another caller is bound too
  });
}

TEST(ThreadPool, LeavesThreadsFreeWithoutNodes) {
  const std::vector<int> all = cpus_of_this_thread();
  ThreadPool pool(3);
  pool.on_each_thread([&](int thread) { EXPECT_EQ(cpus_of_this_thread(), all) << thread; });
}

TEST(ThreadPool, WarnsWhereTheSystemDoesNotBind) {
  on_a_thread([] {
    const CapturedLog log;
    ThreadPool pool(2, start_std_thread, {node(7, {1000})});
    EXPECT_NE(log.text().find("thread 1 cannot be bound to memory node 7: "), std::string::npos) << log.text();
    std::vector<int> runs(100);
    pool.parallel_for(100, [&](int64_t task, int) { ++runs[task]; });
    EXPECT_EQ(runs, std::vector<int>(100, 1));
  });
}

TEST(ThreadPool, CountsCpusOfTheProcessNotOfABoundThread) {
  const std::vector<MemoryNode> nodes = nodes_of_one_cpu();
  const int before = available_cpus();
  on_a_thread([&] {
    ASSERT_TRUE(run_on_cpus(nodes.front().cpus));
    EXPECT_EQ(available_cpus(), before);
  });
}

#endif

}  // namespace
}  // namespace ingot
