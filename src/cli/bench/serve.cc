// ingot bench serve: measures a running server from the client side: time to the first token, time between tokens, time
// of whole requests, and the share of requests that meet their limits (goodput).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/bench/load_client.h"
#include "cli/bench/model.h"
#include "cli/terminal/terminal.h"

namespace ingot {
namespace {

struct BenchServeOptions {
  LoadPlan plan;
  int n_prompt = 128, n_output = 128;
  bool sharegpt = false;
  double slo_ttft_ms = 1000, slo_itl_ms = 100;
  std::string output = "md", plot;
};

// Log-normal lengths, close to those in the ShareGPT collection (means of 220 and 200 tokens).
std::vector<int> lengths(const BenchServeOptions& o, int fixed, double mean, double sigma, std::mt19937_64& random) {
  std::vector<int> n(static_cast<size_t>(o.plan.n_requests), fixed);
  if (!o.sharegpt) return n;
  std::lognormal_distribution<double> draw(std::log(mean) - sigma * sigma / 2, sigma);
  for (int& one : n) one = std::clamp(static_cast<int>(draw(random)), 4, std::max(4, 4 * fixed));
  return n;
}

struct Spread {
  std::vector<double> sorted;
  explicit Spread(std::vector<double> values) : sorted(std::move(values)) { std::ranges::sort(sorted); }
  double at(double share) const {
    return sorted.empty() ? 0 : sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
  }
  nlohmann::ordered_json json() const { return {{"p50", at(.5)}, {"p90", at(.9)}, {"p99", at(.99)}, {"max", at(1)}}; }
};

struct Figures {
  int n_ok = 0, n_refused = 0, n_failed = 0, n_good = 0;
  double seconds = 0, requests_per_s = 0, output_per_s = 0, total_per_s = 0, goodput = 0;
  Spread ttft{{}}, itl{{}}, e2e{{}};
};

Figures figures_of(const LoadRun& run, const BenchServeOptions& o) {
  Figures f{.seconds = run.seconds};
  std::vector<double> ttft, itl, e2e;
  int64_t n_prompt = 0, n_output = 0;
  for (const LoadResult& r : run.results) {
    f.n_refused += !r.ok && (r.status == 429 || r.status == 503);
    f.n_failed += !r.ok && r.status != 429 && r.status != 503;
    if (!r.ok) continue;
    ++f.n_ok;
    n_prompt += r.n_prompt;
    n_output += r.n_output;
    ttft.push_back(r.first * 1e3);
    e2e.push_back(r.last * 1e3);
    for (float gap : r.gaps) itl.push_back(gap * 1e3);
    const double mean_gap_ms = r.n_output > 1 ? (r.last - r.first) / (r.n_output - 1) * 1e3 : 0;
    f.n_good += r.first * 1e3 <= o.slo_ttft_ms && mean_gap_ms <= o.slo_itl_ms;
  }
  f.requests_per_s = f.n_ok / run.seconds;
  f.output_per_s = static_cast<double>(n_output) / run.seconds;
  f.total_per_s = static_cast<double>(n_prompt + n_output) / run.seconds;
  f.goodput = f.n_good / run.seconds;
  f.ttft = Spread(std::move(ttft));
  f.itl = Spread(std::move(itl));
  f.e2e = Spread(std::move(e2e));
  return f;
}

nlohmann::ordered_json json_of(const Figures& f, const BenchServeOptions& o) {
  return {{"model", o.plan.model},
          {"requests", o.plan.n_requests},
          {"ok", f.n_ok},
          {"refused", f.n_refused},
          {"failed", f.n_failed},
          {"seconds", f.seconds},
          {"requests_per_s", f.requests_per_s},
          {"output_tokens_per_s", f.output_per_s},
          {"total_tokens_per_s", f.total_per_s},
          {"goodput_per_s", f.goodput},
          {"ttft_ms", f.ttft.json()},
          {"itl_ms", f.itl.json()},
          {"e2e_ms", f.e2e.json()}};
}

// Prints a line of names and a line of values.
void print_csv(const nlohmann::ordered_json& json) {
  std::string names, values;
  const nlohmann::ordered_json flat = json.flatten();
  for (const auto& [path, value] : flat.items()) {  // "/ttft_ms/p50"
    std::string name = path.substr(1);
    std::ranges::replace(name, '/', '_');
    names += (names.empty() ? "" : ",") + name;
    values += (values.empty() ? "" : ",") + value.dump();
  }
  fmt::print("{}\n{}\n", names, values);
}

void print_table(const Figures& f, const BenchServeOptions& o) {
  fmt::print("{}: {} requests in {:.1f} s: {} ok, {} refused, {} failed\n", printable(o.plan.model), o.plan.n_requests,
             f.seconds, f.n_ok, f.n_refused, f.n_failed);
  fmt::print(
      "{:.2f} requests/s, {:.1f} output tok/s, {:.1f} tok/s with prompts; goodput {:.2f} requests/s (first token "
      "within "
      "{:.0f} ms, then {:.0f} ms each)\n\n",
      f.requests_per_s, f.output_per_s, f.total_per_s, f.goodput, o.slo_ttft_ms, o.slo_itl_ms);
  fmt::print("| ms | p50 | p90 | p99 | max |\n|---|---|---|---|---|\n");
  for (const auto& [name, s] :
       {std::pair{"first token", &f.ttft}, {"between tokens", &f.itl}, {"whole request", &f.e2e}})
    fmt::print("| {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} |\n", name, s->at(.5), s->at(.9), s->at(.99), s->at(1));
}

// Writes an SVG plot: the shares of requests and tokens that arrived within a time.
void write_plot(const Figures& f, const std::string& path) {
  constexpr double kWidth = 640, kHeight = 320, kLeft = 50, kBottom = 280, kTop = 20;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  const struct {
    const char *name, *colour;
    const Spread& spread;
  } lines[] = {
      {"first token", "#b3541e", f.ttft}, {"between tokens", "#2f6fb3", f.itl}, {"whole request", "#2e7d4f", f.e2e}};
  const double low = 0.1, high = std::max(1.0, f.e2e.at(1));
  const auto x = [&](double ms) {
    return kLeft + (kWidth - kLeft - 20) * std::log(std::max(ms, low) / low) / std::log(high / low);
  };
  const auto y = [&](double share) { return kBottom - (kBottom - kTop) * share; };
  for (double share : {0.0, 0.5, 0.9, 1.0})
    svg += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/><text x=\"8\" y=\"{:.1f}\">{:.0f} "
        "%</text>\n",
        kLeft, kWidth - 20, y(share), y(share), y(share) + 4, share * 100);
  for (double ms = 1; ms <= high; ms *= 10)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{} ms</text>\n", x(ms), kBottom + 16, ms);
  double legend = kLeft;
  for (const auto& line : lines) {
    std::string points;
    for (int i = 0; i <= 200; ++i) points += fmt::format("{:.1f},{:.1f} ", x(line.spread.at(i / 200.0)), y(i / 200.0));
    svg += fmt::format(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/><text x=\"{}\" y=\"{}\" "
        "fill=\"{}\">{}</text>\n",
        points, line.colour, legend, kHeight - 6, line.colour, line.name);
    legend += 130;
  }
  svg += "</svg>\n";
  write_file(path, {reinterpret_cast<const uint8_t*>(svg.data()), svg.size()});
}

void bench_serve(BenchServeOptions& o) {
  InterruptGuard guard;
  while (o.plan.url.ends_with('/')) o.plan.url.pop_back();
  ask_model(o.plan);
  std::mt19937_64 random(o.plan.seed);
  o.plan.prompt_tokens = lengths(o, o.n_prompt, 220, 1.0, random);
  o.plan.output_tokens = lengths(o, o.n_output, 200, 0.9, random);
  const Figures figures = figures_of(run_load(o.plan), o);
  if (figures.n_ok == 0)
    throw Error("{}: none of {} requests was answered ({} refused, {} failed)", printable(o.plan.url),
                o.plan.n_requests, figures.n_refused, figures.n_failed);
  if (!o.plot.empty()) write_plot(figures, o.plot);
  if (o.output == "json") return fmt::print("{}\n", json_of(figures, o).dump(2));
  if (o.output == "csv") return print_csv(json_of(figures, o));
  print_table(figures, o);
}

}  // namespace

void add_bench_serve(CLI::App& bench) {
  auto o = std::make_shared<BenchServeOptions>();
  CLI::App* command = bench.add_subcommand("serve", "Measure a running server from the client side");
  command->add_option("--url", o->plan.url, "address of the server, such as http://127.0.0.1:8080")->required();
  command->add_option("--api-key", o->plan.api_key, "API key to send");
  command->add_option("--model", o->plan.model, "name of the model to use; default: the server's first model");
  command->add_option("--requests", o->plan.n_requests, "number of requests")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  command
      ->add_option("--rate", o->plan.rate,
                   "requests per second on average, at random times (Poisson); 0: --concurrency requests at a time")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--concurrency", o->plan.concurrency, "number of requests in flight (with --rate 0)")
      ->check(CLI::Range(1, 4000))
      ->capture_default_str();
  command->add_option("-p,--prompt-tokens", o->n_prompt, "tokens in a prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("-n,--output-tokens", o->n_output, "tokens in an answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_flag("--sharegpt", o->sharegpt,
                    "vary lengths as in conversations of people (ShareGPT), up to four times -p and -n");
  command->add_option("--slo-ttft-ms", o->slo_ttft_ms, "goodput limit of the time to the first token, in ms")
      ->capture_default_str();
  command->add_option("--slo-itl-ms", o->slo_itl_ms, "goodput limit of the mean time between tokens, in ms")
      ->capture_default_str();
  command->add_option("--seed", o->plan.seed, "seed of the random prompts, lengths and arrival times")
      ->capture_default_str();
  command->add_option("-o,--output", o->output, "output format: md, csv or json")
      ->check(CLI::IsMember({"md", "csv", "json"}))
      ->capture_default_str();
  command->add_option("--plot", o->plot, "draw the distributions to this SVG file");
  command->footer(
      "Examples:\n  ingot bench serve --url http://127.0.0.1:8080 --concurrency 32 --requests 200\n"
      "  ingot bench serve --url http://127.0.0.1:8080 --rate 5 --sharegpt -o json --plot latency.svg");
  command->callback([o] { bench_serve(*o); });
}

}  // namespace ingot
