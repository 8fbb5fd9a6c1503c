// ingot bench reduce: the time of a sum over all ranks (all-reduce), by message size.
#include <fmt/format.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "backend/thread_communicator.h"
#include "base/error.h"
#include "base/json.h"
#include "base/system.h"
#include "base/thread_start.h"
#include "cli/bench/model.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kDim = 4096;
constexpr int kWarm = 5;

struct ReduceOptions {
  std::string device = "cpu", output = "md";
  int tp = 2, n_repeats = 50, most_rows = 4096;
};

struct ReduceRow {
  int64_t rows = 0;
  double sum_us = 0, added_us = 0, normed_us = 0;
};

template <class F>
double microseconds(Backend& backend, int n_repeats, F&& op) {
  for (int i = 0; i < kWarm; ++i) op();
  backend.synchronize();
  const auto begun = Clock::now();
  for (int i = 0; i < n_repeats; ++i) op();
  backend.synchronize();
  return std::chrono::duration<double, std::micro>(Clock::now() - begun).count() / n_repeats;
}

// The work of one rank; rank 0 measures.
void measure_rank(const ReduceOptions& o, const std::string& device, const std::shared_ptr<Communicator>& ranks,
                  std::vector<ReduceRow>& table) {
  const std::unique_ptr<Backend> backend = create_backend({.device = device, .n_threads = 1});
  backend->connect(ranks);
  const Tensor x = backend->alloc(DType::kF32, o.most_rows, kDim), y = backend->alloc(DType::kF32, o.most_rows, kDim);
  const Tensor normed = backend->alloc(backend->act_dtype(), o.most_rows, kDim);
  const Tensor weight = backend->alloc(DType::kF32, 1, kDim);
  const NormArgs norm{.weight = weight};
  for (const Tensor& t : {x, y, weight}) backend->zero(t);
  for (int64_t rows = 1; rows <= o.most_rows; rows *= 4) {
    const Tensor to = x.slice_rows(0, rows), from = y.slice_rows(0, rows), norm_out = normed.slice_rows(0, rows);
    const auto time = [&](auto&& op) { return microseconds(*backend, o.n_repeats, op); };
    const ReduceRow row{.rows = rows,
                        .sum_us = time([&] { backend->all_reduce(from); }),
                        .added_us = time([&] { backend->add_reduced(to, from); }),
                        .normed_us = time([&] {
                          backend->add_reduced(to, from, norm_out, norm);
                          if (!backend->norms_sums(to, norm)) backend->norm(norm_out, to, norm);
                        })};
    if (ranks->rank() == 0) table.push_back(row);
  }
  char ready = 0;
  std::vector<char> all(static_cast<size_t>(ranks->size()));
  ranks->exchange(all.data(), &ready, 1);  // other ranks may still be reading this rank's memory
  backend->connect(nullptr);
}

std::vector<ReduceRow> measure(const ReduceOptions& o) {
  RunnerOptions options;
  set_parallel({.tp = o.tp}, 1, o.device, options);
  const auto ranks = std::make_shared<ThreadRanks>(o.tp, std::chrono::seconds(30));
  std::vector<ReduceRow> table;
  std::exception_ptr fault;
  std::mutex mutex;
  const auto run = [&](int rank) {
    const std::shared_ptr<Communicator> communicator = ThreadRanks::communicator(ranks, rank);
    try {
      measure_rank(o, rank_device(options, rank), communicator, table);
    } catch (...) {
      communicator->abort(std::current_exception());
      const std::lock_guard lock(mutex);
      if (!fault) fault = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int r = 1; r < o.tp; ++r) threads.push_back(start_thread("a rank", [&] { return std::thread(run, r); }));
  run(0);
  for (std::thread& thread : threads) thread.join();
  if (fault) std::rethrow_exception(fault);
  return table;
}

void print(const ReduceOptions& o, const std::vector<ReduceRow>& table) {
  OrderedJson json = OrderedJson::array();
  if (o.output == "md")
    fmt::print(
        "{} ranks, {}\n\n| message | sum, us | GB/s | added to the residual stream, us | and normed, us |\n"
        "| ---: | ---: | ---: | ---: | ---: |\n",
        o.tp, o.device);
  for (const ReduceRow& row : table) {
    const int64_t bytes = row.rows * kDim * 4;
    const double gb_s = static_cast<double>(bytes) / row.sum_us * 1e-3;
    json.push_back({{"bytes", bytes},
                    {"sum_us", row.sum_us},
                    {"gb_s", gb_s},
                    {"added_us", row.added_us},
                    {"normed_us", row.normed_us}});
    if (o.output == "md")
      fmt::print("| {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} |\n", human_bytes(static_cast<size_t>(bytes)), row.sum_us,
                 gb_s, row.added_us, row.normed_us);
  }
  if (o.output == "json") fmt::print("{}\n", json.dump());
}

}  // namespace

void add_bench_reduce(CLI::App& bench) {
  auto o = std::make_shared<ReduceOptions>();
  CLI::App* command = bench.add_subcommand("reduce", "Measure the time of a sum over several ranks, by message size");
  command
      ->add_option("--device", o->device,
                   "devices of the ranks: cpu, cuda (the first GPUs), or a list such as cuda:0,cuda:2")
      ->capture_default_str();
  command->add_option("--tp", o->tp, "number of ranks")->check(CLI::Range(2, 64))->capture_default_str();
  command->add_option("-r,--repetitions", o->n_repeats, "number of sums of each size")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--rows", o->most_rows, "size of the largest message, in rows of 4,096 floats")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("-o,--output", o->output, "output format: md or json")
      ->check(CLI::IsMember({"md", "json"}))
      ->capture_default_str();
  command->callback([o] { print(*o, measure(*o)); });
}

}  // namespace ingot
