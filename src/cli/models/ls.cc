// ingot ls: lists the models in the Hugging Face cache.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "base/system.h"
#include "cli/options/commands.h"
#include "cli/options/hub.h"
#include "cli/terminal/terminal.h"
#include "cli/terminal/wrap.h"
#include "io/hub/list.h"
#include "text/json_value.h"

namespace ingot {
namespace {

struct LsOptions {
  HubFlags hub;
  bool json = false, names = false;
};

void print_json(const std::vector<HubEntry>& entries) {
  JsonValue list = JsonValue::array();
  for (const HubEntry& e : entries) {
    list.push_back(
        {{"repo", e.repo},
         {"label", e.label},
         {"commit", e.commit},
         {"revisions", e.revisions},
         {"bytes", e.n_bytes},
         {"last_used", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(e.last_used)))},
         {"path", e.path}});
  }
  fmt::print("{}\n", list.dump(2, ' ', false, JsonValue::error_handler_t::replace));
}

// The refs of the commit ("main"), or the start of the commit's hash if there are no refs.
std::string revision_of(const HubEntry& e) {
  if (e.revisions.empty()) return e.commit.substr(0, 10);
  return printable(fmt::format("{}", fmt::join(e.revisions, ",")), 40);
}

std::string ago(int64_t then) {
  const int64_t minutes = std::max<int64_t>(0, static_cast<int64_t>(std::time(nullptr)) - then) / 60;
  auto in = [](int64_t n, const char* unit) { return fmt::format("{} {}{} ago", n, unit, n == 1 ? "" : "s"); };
  if (minutes < 1) return "just now";
  if (minutes < 120) return in(minutes, "minute");
  if (minutes < 48 * 60) return in(minutes / 60, "hour");
  return in(minutes / 60 / 24, "day");
}

using Row = std::vector<std::string>;

// A row for each model, or, on a terminal with too few columns, the name and below it the rest.
void print_table(const std::vector<HubEntry>& entries) {
  constexpr size_t kSize = 3;  // the column that is aligned to the right
  std::vector<Row> rows = {{"MODEL", "QUANT", "REVISION", "SIZE", "USED"}};
  for (const HubEntry& e : entries)
    rows.push_back({e.repo, printable(e.label, 64), revision_of(e), human_bytes(e.n_bytes), ago(e.last_used)});
  std::vector<int> widths = {20, 12, 12, 10, 0};
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], text_columns(row[i]));
  const int columns = terminal_columns(Stream::kOutput), gaps = 2 * static_cast<int>(widths.size() - 1);
  const bool is_narrow = columns > 0 && std::accumulate(widths.begin(), widths.end(), gaps) > columns;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = is_narrow ? 1 : 0; i < row.size(); ++i) {
      const std::string space(static_cast<size_t>(widths[i] - text_columns(row[i])), ' ');
      if (i == kSize) line += space;
      line += row[i];
      if (i != kSize && i + 1 < row.size()) line += space;
      if (i + 1 < row.size()) line += "  ";
    }
    if (is_narrow) fmt::print("{}\n", cut_to_columns(row[0], columns));
    fmt::print("{}\n", is_narrow ? cut_to_columns("  " + line, columns) : line);
  }
}

// As other commands take them. Interrupted downloads are no models yet.
void print_names(const std::vector<HubEntry>& entries) {
  for (const HubEntry& e : entries)
    if (e.label != "partial") fmt::print("{}{}\n", e.repo, e.label == "safetensors" ? "" : ":" + e.label);
}

void ls(const LsOptions& o) {
  const std::string cache = hub_options(o.hub).cache;
  const std::vector<HubEntry> entries = list_cache(cache);
  if (o.names) return print_names(entries);
  if (o.json) return print_json(entries);
  if (!entries.empty()) return print_table(entries);
  if (stderr_is_terminal())
    fmt::print(stderr, "no models in {}; `ingot pull ORG/REPO` downloads one\n", printable(cache));
}

}  // namespace

void add_ls(CLI::App& app) {
  auto o = std::make_shared<LsOptions>();
  CLI::App* command = app.add_subcommand("ls", "List the downloaded models");
  add_hub_cache_option(*command, o->hub);
  command->add_flag("--json", o->json, "print a JSON array");
  command->add_flag("--names", o->names, "print only names, as other commands take them")->excludes("--json");
  command->footer(
      "Each line is a model of one revision: a GGUF file with its parts, or a safetensors directory. \"partial\": an\n"
      "interrupted download that can be continued. Models of one repository may share files.\n"
      "Examples:\n  ingot ls\n  ingot ls --json --hf-cache /data/models");
  command->callback([o] { ls(*o); });
}

}  // namespace ingot
