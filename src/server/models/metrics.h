// Counters and histograms of one model, as Prometheus text. Names, labels and buckets are those of vLLM with a
// different prefix, so dashboards and routers for vLLM work. The engine's thread and workers update the figures;
// /metrics reads them.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/media/media_cache.h"

namespace ingot {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void observe(double value, uint64_t times = 1);
  // Prints the lines NAME_bucket{LABELS,le="..."} ... NAME_sum, NAME_count.
  void print(std::string& out, const std::string& name, const std::string& labels) const;

 private:
  const std::vector<double> bounds_;
  mutable std::mutex mutex_;
  std::vector<uint64_t> counts_;  // [bounds + 1], not cumulative
  double sum_ = 0;
};

// The figures of a finished request.
struct RequestFigures {
  int prompt_tokens = 0, output_tokens = 0, cached_tokens = 0, max_tokens = 0;
  double queue_s = 0, prefill_s = 0, decode_s = 0, e2e_s = 0, first_token_s = 0;
  bool has_first_token = false;
};

enum class RequestEnd { kStop, kLength, kAbort, kError };

class ModelMetrics {
 public:
  ModelMetrics(const std::string& model, int n_ctx);

  void on_step(const StepStats& stats);
  void on_end(RequestEnd end, const RequestFigures& figures);
  void on_inter_token(double seconds) { inter_token_.observe(seconds); }
  void on_rejected() { ++n_rejected_; }

 private:
  friend class MetricsPrinter;
  const std::string labels_;
  Histogram e2e_, first_token_, inter_token_, per_output_token_, queue_, prefill_, decode_, inference_;
  Histogram prompt_tokens_hist_, output_tokens_hist_, max_tokens_hist_, iteration_tokens_;
  std::atomic<uint64_t> n_rejected_{0};
  std::array<std::atomic<uint64_t>, 4> n_ended_{};  // indexed by RequestEnd
};

// The memory that a model takes on one of its devices.
struct DeviceBytes {
  std::string device;
  size_t bytes = 0;
};

struct MetricsSource {
  const ModelMetrics& metrics;
  EngineGauges gauges;
  RunnerInfo info;
  std::vector<DeviceBytes> devices = {};
  MediaFigures images = {};  // of a model that reads images
};

// Prints the figures of all models; `prefix` is "ingot:" or "vllm:".
void print_metrics(std::string& out, const std::string& prefix, const std::vector<MetricsSource>& models);

}  // namespace ingot
