#include "cli/models/inspect_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "cli/terminal/terminal.h"

namespace ingot {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Matrices of the same format and shape have the same speed, so each group has one time.
using Kind = std::tuple<Format, int64_t, int64_t>;
using Group = std::vector<const Weight*>;

std::map<Kind, Group> groups_of(const Weights& weights, const Config& config) {
  std::map<Kind, Group> groups;
  const auto add = [&](const Weight& w) {
    if (w.n_out > 0 && w.n_experts == 1) groups[{w.format, w.n_out, w.n_in}].push_back(&w);
  };
  for (const Weight* w : layer_matrices(weights, config)) add(*w);
  if (weights.model.output) add(weights.model.output);
  return groups;
}

// Microseconds of a product, the median of kRounds rounds. Each product uses the group's next matrix, so the weights
// are not cached. A round takes about kRoundMs, so slow products run less often.
double time_of(Backend& backend, const Group& group, const Tensor& x, const Tensor& y) {
  constexpr int kRounds = 5;
  constexpr double kRoundMs = 4, kMaxProducts = 24;
  size_t next = 0;
  const auto microseconds = [&](int n_products) {
    backend.synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < n_products; ++i) backend.matmul(y, x, *group[next++ % group.size()]);
    backend.synchronize();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    return took.count() / n_products;
  };
  microseconds(1);  // warms up
  backend.await_kernels();
  const int n_products = static_cast<int>(std::clamp(kRoundMs * 1e3 / microseconds(1), 1.0, kMaxProducts));
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) rounds.push_back(microseconds(n_products));
  return percentile(rounds, 0.5);
}

std::vector<float> noise(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  uint32_t state = 1;
  for (float& v : values) state = state * 1664525u + 1013904223u, v = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  return values;
}

OrderedJson time_group(Backend& backend, const Kind& kind, const Group& group, const std::vector<int>& rows) {
  const auto& [format, n_out, n_in] = kind;
  OrderedJson json = {{"type", info(format).name},
                      {"n_out", n_out},
                      {"n_in", n_in},
                      {"matrices", group.size()},
                      {"rows", OrderedJson::array()}};
  const int max_rows = *std::ranges::max_element(rows);
  const Tensor wide = backend.alloc(DType::kF32, max_rows, n_in), y = backend.alloc(DType::kF32, max_rows, n_out),
               x = backend.alloc(backend.act_dtype(), max_rows, n_in), ones = backend.alloc(DType::kF32, 1, n_in);
  backend.upload(wide, noise(max_rows * n_in).data());
  backend.upload(ones, std::vector<float>(static_cast<size_t>(n_in), 1.0f).data());
  backend.norm(x, wide, {.weight = ones});  // converts x to the input type of products
  for (const int n : rows) {
    OrderedJson row = {{"rows", n}, {"kernels", OrderedJson::array()}};
    for (const std::string& kernel : backend.matmul_kernels(*group[0], n)) {
      backend.use_matmul_kernel(kernel);
      row["kernels"].push_back(
          {{"kernel", kernel}, {"us", time_of(backend, group, x.slice_rows(0, n), y.slice_rows(0, n))}});
    }
    backend.use_matmul_kernel("");
    json["rows"].push_back(row);
  }
  return json;
}

void print_group(const OrderedJson& m) {
  fmt::print("\n{} [{} x {}], {} of them\n", m["type"].get<std::string>(), m["n_out"].get<int64_t>(),
             m["n_in"].get<int64_t>(), m["matrices"].get<int>());
  for (const OrderedJson& row : m["rows"]) {
    fmt::print("{:>7} rows", row["rows"].get<int>());
    for (const OrderedJson& k : row["kernels"])
      fmt::print("   {} {:.1f}", k["kernel"].get<std::string>(), k["us"].get<double>());
    fmt::print("\n");
  }
  std::fflush(stdout);
}

}  // namespace

OrderedJson time_kernels(BenchSubject& subject, const std::vector<int>& rows, bool prints) {
  RunnerOptions options = runner_options(subject.model);
  options.n_ctx = 512;
  options.max_batch_tokens = *std::ranges::max_element(rows);
  const std::unique_ptr<Ranks> runner = load_bench_runner(subject, options);
  OrderedJson json = {{"backend", runner->description()}, {"matrices", OrderedJson::array()}};
  if (prints)
    fmt::print("{}\nmicroseconds of a product; the first kernel is the one that a step takes\n",
               printable(json["backend"].get<std::string>()));
  InterruptGuard guard;
  for (int device = 0; device < runner->n_devices(); ++device) {
    if (prints && runner->n_devices() > 1) fmt::print("\non {}:\n", runner->device_name(device));
    const auto groups = groups_of(runner->weights(device), runner->config());
    size_t n_done = 0;
    for (const auto& [kind, group] : groups) {
      if (InterruptGuard::interrupted()) break;
      StatusLine status;
      status.show(fmt::format("timing {} [{} x {}], shape {} of {}", info(std::get<0>(kind)).name, std::get<1>(kind),
                              std::get<2>(kind), ++n_done, groups.size()));
      json["matrices"].push_back(time_group(runner->backend(device), kind, group, rows));
      if (runner->n_devices() > 1) json["matrices"].back()["device"] = runner->device_name(device);
      status.wipe();
      if (prints) print_group(json["matrices"].back());
    }
  }
  return json;
}

}  // namespace ingot
