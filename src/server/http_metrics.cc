#include "server/http_metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace ingot {
namespace {

constexpr const char* kCountedMethods[] = {"GET", "POST", "DELETE", "OPTIONS"};

}  // namespace

HttpMetrics::Series::Series() : seconds({.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}) {}

void HttpMetrics::count(const std::string& route, const std::string& method, int status, double seconds) {
  const bool is_known = std::ranges::find(kCountedMethods, method) != std::end(kCountedMethods);
  std::lock_guard lock(mutex_);
  Series& series = series_[{route, is_known ? method : "other"}];
  ++series.n_by_status[status];
  series.seconds.observe(seconds);
}

void HttpMetrics::print(std::string& out) const {
  std::lock_guard lock(mutex_);
  const auto labels = [](const auto& key) { return fmt::format(R"(handler="{}",method="{}")", key.first, key.second); };
  out += "# HELP http_requests_total Requests, by route, method and status.\n# TYPE http_requests_total counter\n";
  for (const auto& [key, series] : series_)
    for (const auto& [status, n] : series.n_by_status)
      out += fmt::format("http_requests_total{{{},status=\"{}\"}} {}\n", labels(key), status, n);
  out +=
      "# HELP http_request_duration_seconds From a request's head to the end of its answer.\n"
      "# TYPE http_request_duration_seconds histogram\n";
  for (const auto& [key, series] : series_) series.seconds.print(out, "http_request_duration_seconds", labels(key));
}

}  // namespace ingot
