// The placement of memory pages. The kernel reports the policy and the memory node of a page. Machines with one node
// can report only that node.
#include "backend/cpu/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "backend/cpu/cpu_kv.h"
#include "base/numa.h"
#include "base/system.h"
#include "captured_log.h"

#if defined(__linux__)
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ingot::cpu {
namespace {

constexpr size_t kPage = 4096, kMiB = 1 << 20;

int policy_at(const uint8_t* p) {
  int mode = -1;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0, p, MPOL_F_ADDR) == 0 ? mode : -1;
}

// The memory node of each page; negative for pages that were never touched.
std::vector<int> nodes_of_pages(const Memory& memory) {
  std::vector<void*> pages;
  for (size_t at = 0; at < memory.size(); at += kPage) pages.push_back(memory.data() + at);
  std::vector<int> nodes(pages.size(), -1);
  EXPECT_EQ(syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, nodes.data(), 0), 0);
  return nodes;
}

// QEMU's user mode does not have this system call.
bool system_knows_pages() {
  int here = 0, node = -1;
  void* page = &here;
  return syscall(SYS_move_pages, 0, 1, &page, nullptr, &node, 0) == 0;
}

size_t count_touched(const Memory& memory) {
  const std::vector<int> nodes = nodes_of_pages(memory);
  return static_cast<size_t>(std::count_if(nodes.begin(), nodes.end(), [](int node) { return node >= 0; }));
}

// A cache takes memory from the system block by block, in large pages too.
TEST(CpuKvCache, TakesMemoryAsBlocksAreUsed) {
  if (!system_knows_pages()) GTEST_SKIP() << "the system does not say which pages are used";
  CpuKv kv({.n_layers = 12, .n_kv_heads = 4, .head_dim = 64, .block_size = 16, .n_blocks = 512, .dtype = DType::kF16});
  ASSERT_GE(kv.memory.size(), 96 * kMiB);
  const std::vector<uint8_t> block(kv.block_bytes(), 1);
  for (int32_t i = 0; i < kv.group; ++i) kv.write_block(i, block);
  const size_t used = static_cast<size_t>(kv.group) * kv.block_bytes(), large_page = 2 * kMiB;
  EXPECT_GE(count_touched(kv.memory) * kPage, used);
  EXPECT_LE(count_touched(kv.memory) * kPage, used + large_page);
}

// This machine's first memory node, listed twice. Two entries are enough to cause the calls.
std::vector<MemoryNode> one_node_twice() {
  const std::vector<MemoryNode> nodes = memory_nodes();
  return nodes.empty() ? nodes : std::vector<MemoryNode>{nodes[0], nodes[0]};
}

bool system_has_policies() {
  const Memory memory(kPage);
  return !memory_nodes().empty() && policy_at(memory.data()) >= 0 &&
         interleave_pages(memory.data(), kPage, {memory_nodes()[0].id});
}

TEST(PlaceInTurn, AsksForPagesOfAllNodes) {
  if (!system_has_policies())
    GTEST_SKIP() << "the system has no memory policies, or does not let this process set them";
  const Memory memory(8 * kMiB), untouched(8 * kMiB), small(kMiB);
  place_in_turn(memory, one_node_twice());
  place_in_turn(small, one_node_twice());
  place_in_turn(untouched, {one_node_twice()[0]});
  EXPECT_EQ(policy_at(memory.data()), MPOL_INTERLEAVE);
  EXPECT_EQ(policy_at(memory.data() + memory.size() - kPage), MPOL_INTERLEAVE);
  EXPECT_EQ(policy_at(small.data()), MPOL_DEFAULT) << "not worth a call";
  EXPECT_EQ(policy_at(untouched.data()), MPOL_DEFAULT) << "one node is no choice";
}

TEST(PlaceInTurn, WarnsOnceWhereTheSystemRefuses) {
  const Memory memory(8 * kMiB);
  MemoryNode nowhere;
  nowhere.id = 1000;
  const CapturedLog log;
  for (int i = 0; i < 2; ++i) place_in_turn(memory, {nowhere, nowhere});
  const size_t first = log.text().find("memory cannot be spread over the memory nodes: ");
  EXPECT_NE(first, std::string::npos) << log.text();
  EXPECT_EQ(log.text().find("memory cannot be spread", first + 1), std::string::npos) << log.text();
}

TEST(PlaceByThread, TouchesEveryPageOrNone) {
  const std::vector<MemoryNode> nodes = one_node_twice();
  if (nodes.empty()) GTEST_SKIP() << "the system does not say which memory nodes it has";
  if (!system_knows_pages()) GTEST_SKIP() << "the system does not say on which memory node a page is";
  std::thread([&] {
    ThreadPool pool(3, start_std_thread, nodes), plain(3);
    for (const int64_t n_runs : {1, 3}) {
      const Memory memory(30 * kMiB), untouched(30 * kMiB), runs_too_small(30 * kMiB);
      place_by_thread(memory, n_runs, pool);
      place_by_thread(untouched, n_runs, plain);
      place_by_thread(runs_too_small, 4, pool);
      EXPECT_EQ(count_touched(memory), memory.size() / kPage) << n_runs << " runs";
      EXPECT_EQ(count_touched(untouched), 0u);
      EXPECT_EQ(count_touched(runs_too_small), 0u);
    }
  }).join();
}

TEST(PlaceByThread, PartsLieOnTheNodesOfTheirThreads) {
  const std::vector<MemoryNode> nodes = memory_nodes();
  if (nodes.size() < 2) GTEST_SKIP() << "the machine has one memory node";
  std::thread([&] {
    ThreadPool pool(static_cast<int>(2 * nodes.size()), start_std_thread, nodes);
    constexpr int kRuns = 2;
    const Memory memory(kRuns * nodes.size() * 16 * kMiB);
    place_by_thread(memory, kRuns, pool);
    const std::vector<int> of_page = nodes_of_pages(memory);
    const size_t run = of_page.size() / kRuns, n_threads = static_cast<size_t>(pool.size());
    for (size_t page = 0; page < of_page.size(); ++page) {
      constexpr size_t kHuge = 2 * kMiB / kPage;
      const size_t within = page % run, thread = within * n_threads / run;
      const bool at_edge = within % (run / n_threads) < kHuge || within % (run / n_threads) >= run / n_threads - kHuge;
      if (at_edge) continue;
      ASSERT_EQ(of_page[page], node_of(static_cast<int>(thread), pool.size(), nodes).id) << "page " << page;
    }
  }).join();
}

}  // namespace
}  // namespace ingot::cpu
#endif
