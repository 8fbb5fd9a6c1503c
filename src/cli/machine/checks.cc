#include "cli/machine/checks.h"

#include <filesystem>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "io/hub/http.h"
#include "io/hub/libcurl.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr int kHubWait_s = 5;

// Drops the answer: only its arrival counts.
struct Dropped final : HubSink {
  void begin(const HubResponse&) override {}
  void write(std::span<const uint8_t>) override {}
};

fs::path nearest_existing(const std::string& folder) {
  std::error_code error;
  fs::path path = fs::absolute(folder, error);
  while (!path.empty() && !fs::exists(path, error) && path != path.parent_path()) path = path.parent_path();
  return path;
}

}  // namespace

std::string why_no_hub(const HubOptions& options) {
  if (options.offline) return "offline was asked for (--offline or HF_HUB_OFFLINE)";
  try {
    HubHttp http({.endpoint = options.endpoint,
                  .token = options.token,
                  .certificates = options.certificates,
                  .timeout_s = kHubWait_s,
                  .stopped = {},
                  .pausing = {}});
    Dropped body;
    const HubResponse response = http.fetch(http.options().endpoint + "/api/models?limit=1", 0, body);
    return response.status < 500 ? "" : fmt::format("{} answers HTTP {}", printable(options.endpoint), response.status);
  } catch (const Error& error) {
    return error.what();
  }
}

uint64_t free_disk_bytes(const std::string& folder) {
  std::error_code error;
  const fs::space_info space = fs::space(nearest_existing(folder), error);
  return error ? 0 : space.available;
}

std::string why_not_writable(const std::string& folder) {
  if (folder.empty()) return "no folder is named, and there is no home folder (HOME)";
  const fs::path place = nearest_existing(folder);
  std::error_code error;
  if (!fs::is_directory(place, error)) return fmt::format("{} is not a folder", printable(place.string()));
  const fs::path probe = place / fmt::format(".ingot-doctor-{:x}", reinterpret_cast<uintptr_t>(&error));
  const bool written = static_cast<bool>(std::ofstream(probe) << "x" << std::flush);
  fs::remove(probe, error);
  return written ? "" : fmt::format("{} cannot be written", printable(place.string()));
}

bool is_port_taken(int port) {
  const LibCurl& c = libcurl();
  const std::unique_ptr<CURL, decltype(c.easy_cleanup)> handle(c.easy_init(), c.easy_cleanup);
  c.easy_setopt(handle.get(), CURLOPT_URL, fmt::format("http://127.0.0.1:{}", port).c_str());
  c.easy_setopt(handle.get(), CURLOPT_CONNECT_ONLY, 1L);
  c.easy_setopt(handle.get(), CURLOPT_NOPROXY, "*");
  c.easy_setopt(handle.get(), CURLOPT_CONNECTTIMEOUT, 2L);
  return c.easy_perform(handle.get()) == CURLE_OK;
}

}  // namespace ingot
