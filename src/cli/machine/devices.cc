// ingot devices: the devices of this machine, and why a device is not used.
#include <fmt/format.h>

#include "backend/backend.h"
#include "backend/cuda/create_cuda.h"
#include "backend/nvidia_driver.h"
#include "base/json.h"
#include "base/system.h"
#include "cli/options/commands.h"
#include "cli/terminal/console.h"
#include "cli/terminal/wrap.h"
#include "text/json_value.h"

namespace ingot {
namespace {

struct Devices {
  std::string cpu;  // its description
  size_t memory_bytes = 0;
  NvidiaDriver driver;
  std::string why_no_cuda;
};

Devices find_devices() {
  Devices found;
  const std::string description = create_backend({.device = "cpu"})->description();
  const size_t colon = description.find(": ");
  found.cpu = colon == description.npos ? description : description.substr(colon + 2);
  found.memory_bytes = available_memory_bytes();
  found.driver = read_nvidia_driver();
  found.why_no_cuda = why_no_cuda();
  return found;
}

void print_json(const Devices& d) {
  JsonValue devices = JsonValue::array();
  devices.push_back({{"device", "cpu"}, {"description", d.cpu}, {"free_bytes", d.memory_bytes}, {"used", true}});
  for (size_t i = 0; i < d.driver.gpus.size(); ++i) {
    const NvidiaGpu& gpu = d.driver.gpus[i];
    devices.push_back({{"device", fmt::format("cuda:{}", i)},
                       {"description", gpu.name},
                       {"compute_capability", fmt::format("{}.{}", gpu.major, gpu.minor)},
                       {"memory_bytes", gpu.memory_bytes},
                       {"used", d.why_no_cuda.empty()}});
  }
  JsonValue cuda = {{"why_not_used", d.why_no_cuda}, {"driver_runs_cuda", nullptr}};
  if (d.driver.cuda_major > 0)
    cuda["driver_runs_cuda"] = fmt::format("{}.{}", d.driver.cuda_major, d.driver.cuda_minor);
  fmt::print("{}\n", JsonValue({{"devices", devices}, {"cuda", cuda}}).dump(2));
}

void print_devices(const Devices& d) {
  const int columns = terminal_columns(Stream::kOutput);
  const auto row = [&](const std::string& name, const std::string& text) {
    fmt::print("{}", list_row(fmt::format("{:<9}", name), text, columns));
  };
  row("cpu", fmt::format("{}, {} of memory free", d.cpu, human_bytes(d.memory_bytes)));
  for (size_t i = 0; i < d.driver.gpus.size(); ++i) {
    const NvidiaGpu& gpu = d.driver.gpus[i];
    row(fmt::format("cuda:{}", i),
        fmt::format("{}, compute capability {}.{}, {}", gpu.name, gpu.major, gpu.minor, human_bytes(gpu.memory_bytes)));
  }
  if (d.driver.cuda_major > 0) row("driver", fmt::format("runs CUDA {}.{}", d.driver.cuda_major, d.driver.cuda_minor));
  if (d.why_no_cuda.empty()) return;
  const bool says_it = d.driver.why_none.empty() || d.why_no_cuda.find(d.driver.why_none) != std::string::npos;
  row("cuda", "not used: " + d.why_no_cuda + (says_it ? "" : "; " + d.driver.why_none));
}

}  // namespace

void add_devices(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("devices", "List the devices of this machine, and why one is not used");
  command->add_flag("--json", *json, "print a JSON object");
  command->footer(
      "The names are the values of --device.\n"
      "Examples:\n  ingot devices\n  ingot devices --json");
  command->callback([json] { *json ? print_json(find_devices()) : print_devices(find_devices()); });
}

}  // namespace ingot
