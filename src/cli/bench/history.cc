// ingot bench history: compares the speed of this program and of an older version. The two programs measure the same
// shapes alternately, because the speed of a machine drifts. The medians are compared.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "cli/bench/model.h"
#include "cli/terminal/run_command.h"
#include "cli/terminal/terminal.h"

namespace ingot {
namespace {

struct HistoryOptions {
  std::string base;
  std::vector<std::string> shapes = {"smollm-135m", "qwen3-0.6b"};
  std::vector<std::string> models;
  std::string type = "Q4_0", n_prompt = "128", n_gen = "32", threads = "0", device = "cpu";
  int n_rounds = 5;
  double threshold = 3;  // per cent
};

using Rates = std::map<std::string, std::vector<double>>;  // by "model test"

// Runs `program bench` once, and adds the rate of each row.
void measure(const std::string& program, const std::vector<std::string>& subject, const HistoryOptions& o, Rates& rates,
             std::vector<std::string>& order) {
  std::vector<std::string> command = {program, "bench", "-o", "json", "-r", "1", "-p", o.n_prompt, "-n", o.n_gen,
                                      "-t", o.threads, "--device", o.device};
  command.insert(command.end(), subject.begin(), subject.end());
  const CommandResult result = run_command(command, "", {.time = std::chrono::minutes(30), .output_bytes = 1 << 20},
                                           InterruptGuard::interrupted);
  const std::string& text = result.output;  // warnings may precede the rows
  const size_t begin = std::min(text.find("[\n"), text.size()), end = text.rfind(']') + 1;
  const auto rows = nlohmann::json::parse(text.substr(begin, end > begin ? end - begin : 0), nullptr, false);
  if (result.code != 0 || !rows.is_array())
    throw Error("the benchmark of {} failed: {}", printable(program), printable(text, 400));
  for (const auto& row : rows) {
    const std::string name =
        fmt::format("{} {}", row.value("model", std::string("?")), row.value("test", std::string("?")));
    if (std::ranges::find(order, name) == order.end()) order.push_back(name);
    rates[name].push_back(row.value("avg_ts", 0.0));
  }
}

double median(std::vector<double> values) { return percentile(values, 0.5); }

void compare(const HistoryOptions& o) {
  const std::string own = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::vector<std::string>> subjects;
  for (const std::string& model : o.models) subjects.push_back({model});
  if (o.models.empty())
    for (const std::string& shape : o.shapes) subjects.push_back({"--shape", shape, "--type", o.type});
  Rates before, now;
  std::vector<std::string> order;
  InterruptGuard guard;
  StatusLine status;
  for (const auto& subject : subjects) {
    for (int round = 0; round < o.n_rounds; ++round) {
      status.show(fmt::format("{}: round {} of {}", subject.back(), round + 1, o.n_rounds));
      for (const bool is_base : {round % 2 == 0, round % 2 != 0}) {  // alternates which program goes first
        if (InterruptGuard::interrupted()) throw Error("interrupted");
        measure(is_base ? o.base : own, subject, o, is_base ? before : now, order);
      }
    }
  }
  int n_slower = 0;
  fmt::print("| test | base t/s | this t/s | change | |\n|---|---|---|---|---|\n");
  for (const std::string& name : order) {
    if (!before.contains(name) || !now.contains(name)) continue;
    const double a = median(before[name]), b = median(now[name]), change = a > 0 ? 100 * (b / a - 1) : 0;
    const char* word = change > o.threshold ? "faster" : change < -o.threshold ? "slower" : "same";
    n_slower += change < -o.threshold;
    fmt::print("| {} | {:.1f} | {:.1f} | {:+.1f} % | {} |\n", name, a, b, change, word);
  }
  if (n_slower > 0)
    throw Error("{} of {} tests became slower by more than {} %", n_slower, order.size(), o.threshold);
}

}  // namespace

void add_bench_history(CLI::App& bench) {
  auto o = std::make_shared<HistoryOptions>();
  CLI::App* command =
      bench.add_subcommand("history", "Compare this program with an older one, alternately on the same shapes");
  command->add_option("MODEL", o->models, "models to measure; default: random weights of --shape");
  command->add_option("--base", o->base, "path of the older program")->required()->check(CLI::ExistingFile);
  command->add_option("--shape", o->shapes, "known shape to measure with random weights (repeatable)")
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--type", o->type, "format of the random weights (with --shape)")->capture_default_str();
  command->add_option("-p,--n-prompt", o->n_prompt, "prompt lengths to measure, in tokens")->capture_default_str();
  command->add_option("-n,--n-gen", o->n_gen, "numbers of tokens to generate")->capture_default_str();
  command->add_option("-t,--threads", o->threads, "number of threads; 0: all cores")->capture_default_str();
  command->add_option("--device", o->device, "device to compute on: cpu, cuda, cuda:1 or ref")->capture_default_str();
  command->add_option("--rounds", o->n_rounds, "number of runs of each program")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--threshold", o->threshold, "percentage below which a change counts as the same")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->footer(
      "Example:\n  ingot bench history --base old/ingot --shape llama-3.2-1b\n"
      "`make bench-compare BASE=COMMIT` builds the older program. Exit code 1: a test became slower.");
  command->callback([o] { compare(*o); });
}

}  // namespace ingot
