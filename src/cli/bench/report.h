// The output of `ingot bench`: a Markdown table, CSV or JSON.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace ingot {

struct BenchModel {
  std::string name;
  size_t bytes = 0;
  int64_t n_parameters = 0;
  std::string backend, description;
  int n_threads = 0;
};

struct BenchRow {
  std::string test;           // "pp512"
  std::vector<double> rates;  // tokens a second, one value for each repeat
  double achieved = 0;        // at the mean rate, in `unit`
  std::string unit;           // "GB/s" or "GFLOP/s"
  double peak = 0;            // of this machine, in `unit`; 0: unknown
  std::string peak_kind;      // "read", "int8", "f32"

  double mean() const;
  double deviation() const;   // standard deviation of the repeats
};

class BenchReport {
 public:
  explicit BenchReport(std::string format) : format_(std::move(format)) {}
  void begin(const BenchModel& model);  // call before the rows
  void add(const BenchModel& model, const BenchRow& row);
  void end();

 private:
  const std::string format_;
  bool header_printed_ = false;
  std::string json_rows_;
};

}  // namespace ingot
