// HttpMetrics: counts the requests of each route, by method and status, and measures how long they take. Names and
// labels are those that Prometheus' middlewares for web servers use. Any thread may call the functions.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "server/models/metrics.h"

namespace ingot {

class HttpMetrics {
 public:
  // `route` is a name from a fixed list, not the path that the client sent, so clients cannot make new series.
  void count(const std::string& route, const std::string& method, int status, double seconds);
  void print(std::string& out) const;

 private:
  struct Series {
    std::map<int, uint64_t> n_by_status;
    Histogram seconds;
    Series();
  };
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Series> series_;  // by route and method
};

}  // namespace ingot
