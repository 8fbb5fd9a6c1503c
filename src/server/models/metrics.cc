#include "server/models/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace ingot {
namespace {

const std::vector<double> kFirstToken = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                         1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const std::vector<double> kInterToken = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                         .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const std::vector<double> kLatency = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                      30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kIteration = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

// 1, 2, 5, 10, ... up to the context.
std::vector<double> token_buckets(int n_ctx) {
  std::vector<double> bounds;
  for (double decade = 1; decade <= n_ctx; decade *= 10)
    for (double step : {1.0, 2.0, 5.0})
      if (decade * step <= n_ctx) bounds.push_back(decade * step);
  return bounds;
}

// Escapes a label's value.
std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

constexpr const char* kEndNames[] = {"stop", "length", "abort", "error"};

void describe(std::string& out, const std::string& name, const char* type, const char* help) {
  out += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value, uint64_t times) {
  const size_t bucket = static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  std::lock_guard lock(mutex_);
  counts_[bucket] += times;
  sum_ += value * static_cast<double>(times);
}

void Histogram::print(std::string& out, const std::string& name, const std::string& labels) const {
  std::vector<uint64_t> counts;
  double sum = 0;
  {
    std::lock_guard lock(mutex_);
    counts = counts_;
    sum = sum_;
  }
  uint64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, total);
  }
  out += fmt::format("{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name, labels, sum, total);
}

ModelMetrics::ModelMetrics(const std::string& model, int n_ctx)
    : labels_(fmt::format("model_name=\"{}\",engine=\"0\"", escaped(model))),
      e2e_(kLatency),
      first_token_(kFirstToken),
      inter_token_(kInterToken),
      per_output_token_(kInterToken),
      queue_(kLatency),
      prefill_(kLatency),
      decode_(kLatency),
      inference_(kLatency),
      prompt_tokens_hist_(token_buckets(n_ctx)),
      output_tokens_hist_(token_buckets(n_ctx)),
      max_tokens_hist_(token_buckets(n_ctx)),
      iteration_tokens_(kIteration) {}

void ModelMetrics::on_step(const StepStats& stats) { iteration_tokens_.observe(stats.n_tokens); }

void ModelMetrics::on_end(RequestEnd end, const RequestFigures& f) {
  ++n_ended_[static_cast<size_t>(end)];
  if (f.has_first_token) first_token_.observe(f.first_token_s);
  if (end == RequestEnd::kAbort || end == RequestEnd::kError) return;
  e2e_.observe(f.e2e_s);
  queue_.observe(f.queue_s);
  prefill_.observe(f.prefill_s);
  decode_.observe(f.decode_s);
  inference_.observe(f.prefill_s + f.decode_s);
  if (f.output_tokens > 1) per_output_token_.observe(f.decode_s / (f.output_tokens - 1));
  prompt_tokens_hist_.observe(f.prompt_tokens);
  output_tokens_hist_.observe(f.output_tokens);
  max_tokens_hist_.observe(f.max_tokens);
}

// Prints each metric's description once, then the lines of each model.
class MetricsPrinter {
 public:
  MetricsPrinter(std::string& out, const std::string& prefix, const std::vector<MetricsSource>& models)
      : out_(out), prefix_(prefix), models_(models) {}

  void gauges() {
    value("num_requests_running", "gauge", "Sequences that the engine computes.",
          [](const auto& m) { return m.gauges.n_running; });
    value("num_requests_waiting", "gauge", "Sequences that wait for their first step.",
          [](const auto& m) { return m.gauges.n_waiting; });
    value("kv_cache_usage_perc", "gauge", "Share of the KV cache in use; 1 is all of it.", [](const auto& m) {
      return m.gauges.n_blocks > 0 ? static_cast<double>(m.gauges.blocks_used) / m.gauges.n_blocks : 0.0;
    });
    by_use("kv_blocks", "Blocks of the KV cache.", [](const EngineGauges& g) {
      return Uses{g.blocks_used, g.blocks_cached, g.n_blocks};
    });
    by_use("state_slots", "Slots for states of recurrent layers; cached slots hold snapshots.",
           [](const EngineGauges& g) { return Uses{g.states_used, g.states_cached, g.n_states}; });
    describe(out_, prefix_ + "device_memory_bytes", "gauge", "Memory that the model takes on each of its devices.");
    for (const MetricsSource& m : models_)
      for (const DeviceBytes& taken : m.devices)
        out_ += fmt::format("{}device_memory_bytes{{{},device=\"{}\"}} {}\n", prefix_, m.metrics.labels_, taken.device,
                            taken.bytes);
    value("image_cache_bytes", "gauge", "Memory of encoded images that are kept.",
          [](const auto& m) { return m.images.n_bytes; });
    describe(out_, prefix_ + "cache_config_info", "gauge", "Configuration of the KV cache.");
    for (const MetricsSource& m : models_)
      out_ += fmt::format("{}cache_config_info{{{},block_size=\"{}\",num_gpu_blocks=\"{}\"}} 1\n", prefix_,
                          m.metrics.labels_, m.info.block_size, m.info.pools.empty() ? 0 : m.info.pools[0].n_blocks);
  }

  void counters() {
    value("num_preemptions_total", "counter",
          "Sequences that were preempted: they lost their KV blocks and were computed again.",
          [](const auto& m) { return m.gauges.n_preemptions; });
    value("window_blocks_released_total", "counter",
          "KV blocks that running sequences released, because the sliding window had passed them.",
          [](const auto& m) { return m.gauges.n_blocks_released; });
    value("steps_total", "counter", "Steps of the engine.", [](const auto& m) { return m.gauges.n_steps; });
    value("failed_steps_total", "counter", "Steps that failed; their requests failed too.",
          [](const auto& m) { return m.gauges.n_failed_steps; });
    value("prompt_tokens_total", "counter", "Prompt tokens of requests that began.",
          [](const auto& m) { return m.gauges.n_prompt_tokens; });
    value("generation_tokens_total", "counter", "Tokens generated.",
          [](const auto& m) { return m.gauges.n_output_tokens; });
    value("forced_tokens_total", "counter", "Generated tokens that a grammar forced, so that no step sampled them.",
          [](const auto& m) { return m.gauges.n_forced_tokens; });
    value("spec_decode_num_drafts_total", "counter", "Times that a sequence brought drafts to a step.",
          [](const auto& m) { return m.gauges.n_drafts; });
    value("spec_decode_num_draft_tokens_total", "counter", "Drafts that steps verified.",
          [](const auto& m) { return m.gauges.n_draft_tokens; });
    value("spec_decode_num_accepted_tokens_total", "counter", "Of these, drafts that were right.",
          [](const auto& m) { return m.gauges.n_accepted_tokens; });
    describe(out_, prefix_ + "spec_decode_num_accepted_tokens_per_pos_total", "counter",
             "The same by the place among the drafts of a step.");
    for (const MetricsSource& m : models_)
      for (int i = 0; i < kMaxDrafts; ++i)
        out_ += fmt::format("{}spec_decode_num_accepted_tokens_per_pos_total{{{},position=\"{}\"}} {}\n", prefix_,
                            m.metrics.labels_, i, m.gauges.n_accepted_at[i]);
    value("spec_decode_step_seconds_total", "counter", "Time of sequences that speculate, as such steps are measured.",
          [](const auto& m) { return m.gauges.step_seconds; });
    value("spec_decode_plain_seconds_total", "counter",
          "Time of steps without drafts that would have given the same tokens.",
          [](const auto& m) { return m.gauges.plain_seconds; });
    value("prefix_cache_queries_total", "counter", "Prompt tokens that were looked up in the prefix cache.",
          [](const auto& m) { return m.gauges.n_prompt_tokens; });
    value("prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.",
          [](const auto& m) { return m.gauges.n_cached_tokens; });
    value("images_encoded_total", "counter", "Images that the vision tower encoded.",
          [](const auto& m) { return m.images.n_encoded; });
    value("images_cached_total", "counter", "Images of requests whose vectors were still there.",
          [](const auto& m) { return m.images.n_found; });
    value("image_encode_seconds_total", "counter", "Time of the vision tower.",
          [](const auto& m) { return m.images.encode_ms / 1e3; });
    value("requests_rejected_total", "counter", "Requests refused because the queue was full.",
          [](const auto& m) { return m.metrics.n_rejected_.load(); });
    describe(out_, prefix_ + "request_success_total", "counter", "Finished requests, by reason.");
    for (const MetricsSource& m : models_)
      for (size_t i = 0; i < m.metrics.n_ended_.size(); ++i)
        out_ += fmt::format("{}request_success_total{{{},finished_reason=\"{}\"}} {}\n", prefix_, m.metrics.labels_,
                            kEndNames[i], m.metrics.n_ended_[i].load());
  }

  void histograms() {
    using M = ModelMetrics;
    histogram("e2e_request_latency_seconds", &M::e2e_, "From submission to the last token.");
    histogram("time_to_first_token_seconds", &M::first_token_, "From submission to the first token.");
    histogram("inter_token_latency_seconds", &M::inter_token_, "Between two tokens of a sequence.");
    histogram("request_time_per_output_token_seconds", &M::per_output_token_,
              "Mean time between the tokens of a request.");
    histogram("request_queue_time_seconds", &M::queue_, "Waiting for the first step.");
    histogram("request_prefill_time_seconds", &M::prefill_, "From the first step to the first token.");
    histogram("request_decode_time_seconds", &M::decode_, "From the first token to the last.");
    histogram("request_inference_time_seconds", &M::inference_, "From the first step to the last token.");
    histogram("request_prompt_tokens", &M::prompt_tokens_hist_, "Tokens of a prompt.");
    histogram("request_generation_tokens", &M::output_tokens_hist_, "Tokens generated for a request.");
    histogram("request_max_num_generation_tokens", &M::max_tokens_hist_,
              "Maximum number of tokens that a request allowed.");
    histogram("iteration_tokens_total", &M::iteration_tokens_, "Tokens of a step.");
  }

 private:
  template <class F>
  void value(const char* name, const char* type, const char* help, F number) {
    describe(out_, prefix_ + name, type, help);
    for (const MetricsSource& m : models_)
      out_ += fmt::format("{}{}{{{}}} {}\n", prefix_, name, m.metrics.labels_, number(m));
  }
  // Three lines per model: used, cached and free.
  struct Uses {
    int held, cached, all;
  };
  template <class F>
  void by_use(const char* name, const char* help, F uses) {
    describe(out_, prefix_ + name, "gauge", help);
    for (const MetricsSource& m : models_) {
      const Uses u = uses(m.gauges);
      for (const auto& [use, n] :
           {std::pair{"held", u.held}, {"cached", u.cached}, {"free", u.all - u.held - u.cached}})
        out_ += fmt::format("{}{}{{{},use=\"{}\"}} {}\n", prefix_, name, m.metrics.labels_, use, n);
    }
  }
  void histogram(const char* name, const Histogram ModelMetrics::*which, const char* help) {
    describe(out_, prefix_ + name, "histogram", help);
    for (const MetricsSource& m : models_) (m.metrics.*which).print(out_, prefix_ + name, m.metrics.labels_);
  }

  std::string& out_;
  const std::string& prefix_;
  const std::vector<MetricsSource>& models_;
};

void print_metrics(std::string& out, const std::string& prefix, const std::vector<MetricsSource>& models) {
  MetricsPrinter printer(out, prefix, models);
  printer.gauges();
  printer.counters();
  printer.histograms();
}

}  // namespace ingot
