#include "backend/device_name.h"

#include <charconv>
#include <system_error>

#include "base/error.h"

namespace ingot {
namespace {

constexpr std::string_view kCuda = "cuda", kNumbered = "cuda:";

}  // namespace

bool is_cuda(std::string_view device) { return device == kCuda || device.starts_with(kNumbered); }

int cuda_index(std::string_view device) {
  if (device == kCuda) return 0;
  const std::string_view number = device.starts_with(kNumbered) ? device.substr(kNumbered.size()) : "";
  int index = -1;
  const auto [end, status] = std::from_chars(number.data(), number.data() + number.size(), index);
  if (number.empty() || status != std::errc() || end != number.data() + number.size() || index < 0)
    throw UsageError("unknown device '{}': name a GPU as cuda (the first) or cuda:N, with N from 0", printable(device));
  return index;
}

void check_cuda_index(int index, int n_devices) {
  if (index < n_devices) return;
  throw UsageError("there is no GPU cuda:{}: this machine has {}, cuda:0{}", index, n_devices,
                   n_devices > 1 ? fmt::format(" to cuda:{}", n_devices - 1) : "");
}

}  // namespace ingot
