// Proves where weights would be on a machine with two memory nodes, on a machine with one: a fake tree of /sys gives
// each node one of this machine's CPUs, and the memory is locked, so that the first touch of each page faults. The
// fault's handler writes down the CPU. The system would place the page on that CPU's node.
#include <gtest/gtest.h>

#include "backend/cpu/memory.h"
#include "base/cpu_topology.h"
#include "base/numa.h"
#include "base/threads.h"

#if defined(__linux__)
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

namespace ingot::cpu {
namespace {

constexpr size_t kLockedPage = 4096, kLockedMiB = 1 << 20;

// Memory whose first touches are written down, one at a time in the program.
class LockedMemory {
 public:
  explicit LockedMemory(const Memory& memory) : begin_(memory.data()), cpus_(memory.size() / kLockedPage) {
    for (std::atomic<int>& cpu : cpus_) cpu = -1;
    current_ = this;
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    EXPECT_EQ(sigaction(SIGSEGV, &action, &before_), 0);
    EXPECT_EQ(mprotect(begin_, memory.size(), PROT_NONE), 0);
  }
  ~LockedMemory() {
    sigaction(SIGSEGV, &before_, nullptr);
    mprotect(begin_, cpus_.size() * kLockedPage, PROT_READ | PROT_WRITE);
    current_ = nullptr;
  }
  size_t n_pages() const { return cpus_.size(); }
  int cpu_of(size_t page) const { return cpus_[page]; }  // of the first touch; -1: none

 private:
  static void on_fault(int, siginfo_t* info, void*) {
    auto* at = static_cast<uint8_t*>(info->si_addr);
    LockedMemory* locked = current_;
    if (locked == nullptr || at < locked->begin_ || at >= locked->begin_ + locked->cpus_.size() * kLockedPage)
      _exit(99);
    const size_t page = static_cast<size_t>(at - locked->begin_) / kLockedPage;
    int none = -1;
    locked->cpus_[page].compare_exchange_strong(none, sched_getcpu());
    mprotect(locked->begin_ + page * kLockedPage, kLockedPage, PROT_READ | PROT_WRITE);
  }

  static inline std::atomic<LockedMemory*> current_{nullptr};
  uint8_t* begin_;
  std::vector<std::atomic<int>> cpus_;
  struct sigaction before_ {};
};

// A tree in which node i has only the CPU cpus[i].
class NodesTree {
 public:
  explicit NodesTree(const std::vector<int>& cpus) {
    std::string allowed, online;
    for (size_t i = 0; i < cpus.size(); ++i) {
      const std::string comma = i > 0 ? "," : "", cpu = std::to_string(cpus[i]), node = std::to_string(i);
      allowed += comma + cpu;
      online += comma + node;
      write("sys/devices/system/cpu/cpu" + cpu + "/topology/thread_siblings_list", cpu);
      write("sys/devices/system/node/node" + node + "/cpulist", cpu);
    }
    write("proc/self/status", "Cpus_allowed_list:\t" + allowed);
    write("sys/devices/system/node/online", online);
  }
  ~NodesTree() { std::filesystem::remove_all(path); }
  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / ("ingot-nodes-" + std::to_string(::getpid()));

 private:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text << "\n";
  }
};

std::vector<int> two_cpus() {
  std::vector<int> cpus;
  for (const CpuPlace& place : read_topology().cpus)
    if (cpus.size() < 2) cpus.push_back(place.cpu);
  return cpus;
}

TEST(FirstTouch, EachNodeTouchesWhatItsThreadsRead) {
  const std::vector<int> cpus = two_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "the process has one CPU";
  const NodesTree tree(cpus);
  const std::vector<MemoryNode> nodes = memory_nodes(tree.path);
  ASSERT_EQ(nodes.size(), 2u);
  constexpr int kExperts = 2, kThreads = 4;
  const Memory memory(kExperts * 8 * kLockedMiB);
  const LockedMemory locked(memory);
  std::thread([&] {
    ThreadPool pool(kThreads, start_std_thread, nodes);
    place_by_thread(memory, kExperts, pool);
  }).join();
  const size_t run = locked.n_pages() / kExperts;
  for (size_t page = 0; page < locked.n_pages(); ++page) {
    const auto thread = static_cast<int>(page % run * kThreads / run);
    ASSERT_EQ(locked.cpu_of(page), node_of(thread, kThreads, nodes).cpus[0]) << "page " << page;
  }
}

TEST(FirstTouch, WithoutNodesNothingIsTouchedBeforeItIsWritten) {
  const Memory memory(8 * kLockedMiB);
  const LockedMemory locked(memory);
  ThreadPool pool(2);
  place_by_thread(memory, 1, pool);
  for (size_t page = 0; page < locked.n_pages(); ++page) ASSERT_EQ(locked.cpu_of(page), -1);
}

}  // namespace
}  // namespace ingot::cpu
#endif
