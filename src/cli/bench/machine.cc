// ingot bench machine: the cores, caches and memory nodes of this machine, and what they can do at most: bytes read and
// products of each kind, by number of threads, with the threads of a core apart and together.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/machine_peaks.h"
#include "base/control_group.h"
#include "base/cpu_topology.h"
#include "base/error.h"
#include "base/json.h"
#include "base/system.h"
#include "base/threads.h"
#include "cli/bench/model.h"
#include "cli/terminal/terminal.h"

namespace ingot {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct MachineOptions {
  std::vector<int> threads;
  bool json = false;
};

struct MachineRow {
  const char* placement;  // of threads on cores: "apart" or "together"
  std::vector<int> cpus;
  cpu::MachinePeaks peaks;
};

// 1, 2, 4 ... and all CPUs.
std::vector<int> usual_counts(int n_cpus) {
  std::vector<int> counts;
  for (int n = 1; n < n_cpus; n *= 2) counts.push_back(n);
  counts.push_back(n_cpus);
  return counts;
}

// Several times the size of all caches, but at most a fourth of the free memory.
size_t bytes_to_read(const CpuTopology& topology) {
  constexpr size_t kLeast = size_t{64} << 20, kUsual = size_t{512} << 20;
  size_t cached = 0;
  for (const CpuCaches& caches : topology.caches)
    cached = std::max(cached, caches.bytes * static_cast<size_t>(caches.n_caches));
  return std::max(kLeast, std::min(std::max(kUsual, 4 * cached), available_memory_bytes() / 4));
}

std::vector<MachineRow> measure_rows(const MachineOptions& o, const CpuTopology& topology) {
  const int n_cpus = static_cast<int>(topology.cpus.size());
  const size_t n_bytes = bytes_to_read(topology);
  std::vector<MachineRow> rows;
  StatusLine status;
  for (const int wanted : o.threads.empty() ? usual_counts(n_cpus) : o.threads) {
    const int n = std::min(wanted, n_cpus);
    std::vector<int> apart = cpus_apart(topology, n), together = cpus_together(topology, n);
    const bool differ = !std::ranges::is_permutation(apart, together);
    rows.push_back({"apart", std::move(apart), {}});
    if (differ) rows.push_back({"together", std::move(together), {}});
  }
  for (MachineRow& row : rows) {
    if (InterruptGuard::interrupted()) throw Error("interrupted");
    status.show(fmt::format("{} threads, {}", row.cpus.size(), row.placement));
    row.peaks = cpu::measure_machine(row.cpus, n_bytes);
  }
  return rows;
}

void print_topology(const CpuTopology& t, double quota) {
  fmt::print("{} socket{}, {} core{}, {} CPU{} for this process ({} on a core at most), {} memory node{}\n",
             t.n_sockets, t.n_sockets == 1 ? "" : "s", t.n_cores, t.n_cores == 1 ? "" : "s", t.cpus.size(),
             t.cpus.size() == 1 ? "" : "s", t.most_threads, t.nodes.size(), t.nodes.size() == 1 ? "" : "s");
  if (std::isfinite(quota)) fmt::print("the control group's quota is {:.1f} CPUs\n", quota);
  for (const MemoryNode& node : t.nodes) fmt::print("memory node {}: CPUs {}\n", node.id, fmt::join(node.cpus, " "));
  if (!t.caches.empty()) fmt::print("\n| cache | type | size | number | CPUs on one |\n|---|---|---|---|---|\n");
  for (const CpuCaches& c : t.caches)
    fmt::print("| L{} | {} | {} | {} | {} |\n", c.level, printable(c.type), human_bytes(c.bytes), c.n_caches, c.n_cpus);
}

void print_rows(const std::vector<MachineRow>& rows) {
  fmt::print(
      "\nMeans, in brackets the best loop; GB/s, and 10^9 operations a second.\n\n| threads | on cores | read |");
  for (const std::string& name : cpu::product_names()) fmt::print(" {} |", name);
  fmt::print("\n|---|---|---|");
  for (size_t i = 0; i < cpu::product_names().size(); ++i) fmt::print("---|");
  fmt::print("\n");
  for (const MachineRow& row : rows) {
    fmt::print("| {} | {} | {:.1f} ({:.1f}) |", row.cpus.size(), row.placement, row.peaks.read.mean,
               row.peaks.read.best);
    for (const cpu::Rate& rate : row.peaks.products) fmt::print(" {:.0f} ({:.0f}) |", rate.mean, rate.best);
    fmt::print("\n");
  }
}

OrderedJson json_of_rate(const cpu::Rate& rate) { return {{"mean", rate.mean}, {"best", rate.best}}; }

OrderedJson json_of_topology(const CpuTopology& t, double quota) {
  OrderedJson json = {{"sockets", t.n_sockets}, {"cores", t.n_cores}};
  json["quota_cpus"] = std::isfinite(quota) ? OrderedJson(quota) : OrderedJson();
  json["cpus"] = json["caches"] = json["memory_nodes"] = OrderedJson::array();
  for (const CpuPlace& place : t.cpus)
    json["cpus"].push_back({{"cpu", place.cpu}, {"core", place.core}, {"socket", place.socket}});
  for (const CpuCaches& c : t.caches)
    json["caches"].push_back(
        {{"level", c.level}, {"type", c.type}, {"bytes", c.bytes}, {"number", c.n_caches}, {"cpus", c.n_cpus}});
  for (const MemoryNode& node : t.nodes) json["memory_nodes"].push_back({{"id", node.id}, {"cpus", node.cpus}});
  return json;
}

void print_json(const CpuTopology& topology, double quota, const std::vector<MachineRow>& rows) {
  OrderedJson json = json_of_topology(topology, quota);
  const std::vector<std::string> names = cpu::product_names();
  json["peaks"] = OrderedJson::array();
  for (const MachineRow& row : rows) {
    OrderedJson products = OrderedJson::object();
    for (size_t i = 0; i < names.size(); ++i) products[names[i]] = json_of_rate(row.peaks.products[i]);
    json["peaks"].push_back({{"threads", row.cpus.size()},
                             {"placement", row.placement},
                             {"cpus", row.cpus},
                             {"read_gb_s", json_of_rate(row.peaks.read)},
                             {"products", std::move(products)}});
  }
  fmt::print("{}\n", json.dump(2, ' ', false, OrderedJson::error_handler_t::replace));
}

void bench_machine(const MachineOptions& o) {
  InterruptGuard guard;
  const CpuTopology topology = read_topology();
  if (topology.cpus.empty()) throw Error("the system does not list the CPUs of this process: this needs Linux's /proc");
  const double quota = read_control_group().n_cpus;
  if (!o.json) print_topology(topology, quota);
  std::fflush(stdout);
  const std::vector<MachineRow> rows = measure_rows(o, topology);
  o.json ? print_json(topology, quota, rows) : print_rows(rows);
}

}  // namespace

void add_bench_machine(CLI::App& bench) {
  auto o = std::make_shared<MachineOptions>();
  CLI::App* command =
      bench.add_subcommand("machine", "Measure the memory and the cores of this machine, by number of threads");
  command->add_option("-t,--threads", o->threads, "numbers of threads to measure; default: 1, 2, 4 ... and all CPUs")
      ->check(CLI::Range(1, kMaxThreads))
      ->delimiter(',');
  command->add_flag("--json", o->json, "print a JSON object");
  command->footer(
      "Threads are apart when each has a core of its own, and together when a core's threads are used before the next "
      "core.\nExamples:\n  ingot bench machine\n  ingot bench machine -t 1,8 --json");
  command->callback([o] { bench_machine(*o); });
}

}  // namespace ingot
