#include "model/devices/device_spread.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "backend/device_name.h"
#include "base/error.h"
#include "model/devices/ranks.h"

namespace ingot {
namespace {

// The GPU and those after it; the CPU several times.
std::vector<std::string> numbered_from(const std::string& first, size_t n) {
  std::vector<std::string> devices(n, first);
  for (size_t i = 0; i < n && is_cuda(first); ++i)
    devices[i] = fmt::format("cuda:{}", cuda_index(first) + static_cast<int>(i));
  return devices;
}

void check_no_gpu_twice(const std::vector<std::string>& devices) {
  for (size_t i = 0; i < devices.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (is_cuda(devices[i]) && is_cuda(devices[j]) && cuda_index(devices[i]) == cuda_index(devices[j]))
        throw UsageError("the list of devices {} names a GPU twice: each rank needs its own GPU",
                    printable(fmt::format("{}", fmt::join(devices, ","))));
}

}  // namespace

std::vector<std::string> device_list(const std::string& devices) {
  std::vector<std::string> list;
  for (size_t begin = 0; begin <= devices.size();) {
    const size_t end = std::min(devices.find(',', begin), devices.size());
    list.push_back(devices.substr(begin, end - begin));
    begin = end + 1;
  }
  return list;
}

void spread_over_devices(const std::string& named, int n_ranks, int n_stages, RunnerOptions& options) {
  options.parallel.n_ranks = n_ranks;
  std::vector<std::string> devices = device_list(named);
  const auto n_wanted = static_cast<size_t>(n_ranks) * static_cast<size_t>(n_stages);
  if (devices.size() == 1) devices = numbered_from(devices[0], n_wanted);
  if (devices.size() != n_wanted)
    throw Error("device names {} devices, but tp is {} and pp is {}: name tp * pp devices, or the first one",
                devices.size(), n_ranks, n_stages);
  check_no_gpu_twice(devices);
  options.backend.device = devices.front();
  for (int rank = 0; rank < n_ranks; ++rank) {
    std::string own = devices[static_cast<size_t>(rank)];
    for (int stage = 1; stage < n_stages; ++stage) own += "," + devices[static_cast<size_t>(stage * n_ranks + rank)];
    if (n_ranks == 1) options.backend.device = own;
    else options.parallel.devices.push_back(own);
  }
}

}  // namespace ingot
