#include "cli/bench/report.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json.h"
#include "base/system.h"

namespace ingot {
namespace {

std::string share(const BenchRow& row) {
  return row.peak > 0 ? fmt::format("{:.0f} % of {:.0f} ({})", 100 * row.achieved / row.peak, row.peak, row.peak_kind)
                      : "not known";
}

nlohmann::ordered_json to_json(const BenchModel& m, const BenchRow& r) {
  nlohmann::ordered_json json = {{"model", m.name},       {"model_size", m.bytes},   {"model_n_params", m.n_parameters},
                                 {"backend", m.backend},  {"device", m.description}, {"n_threads", m.n_threads},
                                 {"test", r.test},        {"avg_ts", r.mean()},      {"stddev_ts", r.deviation()},
                                 {"samples_ts", r.rates}, {"achieved", r.achieved},  {"unit", r.unit}};
  json["peak"] = r.peak > 0 ? nlohmann::ordered_json(r.peak) : nlohmann::ordered_json();
  json["peak_kind"] = r.peak_kind;
  return json;
}

}  // namespace

double BenchRow::mean() const {
  double sum = 0;
  for (double rate : rates) sum += rate;
  return sum / static_cast<double>(rates.size());
}

double BenchRow::deviation() const {
  double squares = 0;
  for (double rate : rates) squares += (rate - mean()) * (rate - mean());
  return rates.size() > 1 ? std::sqrt(squares / static_cast<double>(rates.size() - 1)) : 0.0;
}

// Each row has its own peak, which is measured before the row.
void BenchReport::begin(const BenchModel& model) {
  if (format_ != "md") return;
  fmt::print("{}{}\n\n| model | size | params | backend | threads | test | t/s | achieved | share of measured peak |\n"
             "|---|---|---|---|---|---|---|---|---|\n",
             header_printed_ ? "\n" : "", model.description);
  header_printed_ = true;
}

void BenchReport::add(const BenchModel& m, const BenchRow& r) {
  if (format_ == "json") {
    json_rows_ += (json_rows_.empty() ? "  " : ",\n  ") + to_json(m, r).dump();
  } else if (format_ == "csv") {
    if (!header_printed_)
      fmt::print(
          "model,model_size,model_n_params,backend,n_threads,test,avg_ts,stddev_ts,achieved,unit,peak,peak_kind\n");
    header_printed_ = true;
    fmt::print("\"{}\",{},{},{},{},{},{:.3f},{:.3f},{:.3f},{},{:.3f},{}\n", m.name, m.bytes, m.n_parameters, m.backend,
               m.n_threads, r.test, r.mean(), r.deviation(), r.achieved, r.unit, r.peak, r.peak_kind);
  } else {
    fmt::print("| {} | {} | {:.2f} M | {} | {} | {} | {:.2f} ± {:.2f} | {:.1f} {} | {} |\n", m.name,
               human_bytes(m.bytes), static_cast<double>(m.n_parameters) * 1e-6, m.backend, m.n_threads, r.test,
               r.mean(), r.deviation(), r.achieved, r.unit, share(r));
  }
  std::fflush(stdout);
}

void BenchReport::end() {
  if (format_ == "json") fmt::print("[\n{}\n]\n", json_rows_);
}

}  // namespace ingot
