// ingot doctor: checks what a first run needs on this machine, and says what to do about each fault.
#include <fmt/format.h>

#include <vector>

#include "backend/backend.h"
#include "backend/cuda/create_cuda.h"
#include "backend/nvidia_driver.h"
#include "base/cache_folder.h"
#include "base/error.h"
#include "base/json.h"
#include "base/system.h"
#include "cli/machine/checks.h"
#include "cli/options/commands.h"
#include "cli/options/hub.h"
#include "cli/terminal/console.h"
#include "cli/terminal/wrap.h"
#include "io/hub/libcurl.h"
#include "text/json_value.h"

namespace ingot {
namespace {

constexpr uint64_t kLittleMemory = 2ull << 30, kLittleDisk = 2ull << 30;

struct DoctorOptions {
  HubFlags hub;
  int port = 8080;
  bool json = false;
};

// good: nothing to do. limited: ingot runs, but something is slow or missing. broken: a command will fail.
enum class Health { kGood, kLimited, kBroken };
constexpr const char* kHealthNames[] = {"good", "limited", "broken"};

struct Finding {
  const char* what;
  Health health;
  std::string text, advice;
};

Finding check_cpu() {
  const std::string text = create_backend({.device = "cpu"})->description();
  const bool slow = text.find("portable") != std::string::npos;
  return {"processor", slow ? Health::kLimited : Health::kGood, text,
          slow ? "kernels for this processor are missing: expect a tenth of the speed" : ""};
}

Finding check_memory() {
  const size_t free = available_memory_bytes();
  return {"memory", free < kLittleMemory ? Health::kLimited : Health::kGood, human_bytes(free) + " free",
          free < kLittleMemory ? "models take about their file's size: end other programs, or take a small model" : ""};
}

Finding check_gpu() {
  const NvidiaDriver driver = read_nvidia_driver();
  const std::string why = why_no_cuda();
  if (driver.gpus.empty()) return {"GPU", Health::kGood, "none: " + driver.why_none + "; ingot uses the processor", ""};
  if (why.empty()) return {"GPU", Health::kGood, driver.gpus[0].name, ""};
  return {"GPU", Health::kLimited, driver.gpus[0].name + " is not used: " + why,
          "docs/install.md says how to add CUDA"};
}

Finding check_folder(const char* what, const std::string& folder, const char* advice) {
  const std::string why = why_not_writable(folder);
  return {what, why.empty() ? Health::kGood : Health::kBroken, why.empty() ? printable(folder) : why,
          why.empty() ? "" : advice};
}

Finding check_disk(const std::string& folder) {
  const uint64_t free = free_disk_bytes(folder);
  return {
      "disk", free < kLittleDisk ? Health::kLimited : Health::kGood, human_bytes(free) + " free for models",
      free < kLittleDisk ? "remove models (ingot ls, ingot rm), or name a folder on another disk (--hf-cache)" : ""};
}

Finding check_libcurl() {
  try {
    libcurl();
    return {"libcurl", Health::kGood, "found", ""};
  } catch (const Error& error) {
    return {"libcurl", Health::kLimited, error.what(), "without it, models on the disk still run"};
  }
}

Finding check_hub(const HubOptions& options) {
  const std::string why = why_no_hub(options);
  if (why.empty()) return {"Hub", Health::kGood, printable(options.endpoint) + " answers", ""};
  return {"Hub", Health::kLimited, why,
          "models on the disk run without it; behind a proxy set HTTPS_PROXY, for a mirror HF_ENDPOINT"};
}

Finding check_port(int port) {
  try {
    if (is_port_taken(port))
      return {"port", Health::kLimited, fmt::format("{} is in use", port), "give ingot serve another --port"};
    return {"port", Health::kGood, fmt::format("{} is free for ingot serve", port), ""};
  } catch (const Error&) {
    return {"port", Health::kLimited, "not checked: this needs libcurl", ""};
  }
}

std::vector<Finding> examine(const DoctorOptions& o) {
  const HubOptions hub = hub_options(o.hub);
  return {check_cpu(),
          check_memory(),
          check_gpu(),
          check_folder("models", hub.cache, "make the folder writable, or name another (--hf-cache or HF_HUB_CACHE)"),
          check_disk(hub.cache),
          check_folder("cache", cache_home(), "make the folder writable, or name another in XDG_CACHE_HOME"),
          check_libcurl(),
          check_hub(hub),
          check_port(o.port)};
}

void doctor(const DoctorOptions& o) {
  const std::vector<Finding> findings = examine(o);
  JsonValue list = JsonValue::array();
  Health worst = Health::kGood;
  const int columns = terminal_columns(Stream::kOutput);
  for (const Finding& f : findings) {
    const char* health = kHealthNames[static_cast<int>(f.health)];
    worst = std::max(worst, f.health);
    list.push_back({{"what", f.what}, {"health", health}, {"text", f.text}, {"advice", f.advice}});
    if (o.json) continue;
    fmt::print("{}", list_row(fmt::format("{:<8} {:<10} ", health, f.what), f.text, columns));
    if (!f.advice.empty()) fmt::print("{}", list_row("         -> ", f.advice, columns));
  }
  if (o.json) fmt::print("{}\n", list.dump(2, ' ', false, JsonValue::error_handler_t::replace));
  if (worst == Health::kBroken) throw CLI::RuntimeError(1);
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto o = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand("doctor", "Check this machine: devices, memory, folders, the Hub, the port");
  command->add_option("--port", o->port, "the port that `ingot serve` will use")
      ->capture_default_str()
      ->check(CLI::Range(1, 65535));
  command->add_flag("--json", o->json, "print a JSON array");
  add_hub_options(*command, o->hub);
  command->footer(
      "Each line is good, limited (ingot runs, but something is slow or missing) or broken (a command will fail, and "
      "the\n"
      "exit code is 1). The only connections are one to the Hub and one to the port. Nothing is changed.\n"
      "Examples:\n  ingot doctor\n  ingot doctor --port 9000 --json");
  command->callback([o] { doctor(*o); });
}

}  // namespace ingot
