// hub_options_from_environment: reads the environment variables of huggingface_hub. Flags override them
// (cli/options/hub.h).
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "base/ascii.h"
#include "base/file.h"
#include "io/hub/hub.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string expand_home(const std::string& path) {
  return path == "~" || path.starts_with("~/") ? variable("HOME") + path.substr(1) : path;
}

bool is_true(const std::string& value) {
  const std::string upper = to_upper(value);
  return upper == "1" || upper == "ON" || upper == "YES" || upper == "TRUE";
}

std::string home_folder() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return expand_home(home);
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return expand_home(cache) + "/huggingface";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/huggingface";
}

std::string token_of(const std::string& home) {
  if (const std::string token(trim(variable("HF_TOKEN"))); !token.empty()) return token;
  std::error_code error;
  const std::string path = home + "/token";
  return !home.empty() && fs::is_regular_file(path, error) ? std::string(trim(read_file(path, 4096))) : "";
}

int timeout_of(const std::string& text, int otherwise) {
  if (text.empty()) return otherwise;
  int seconds = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (failure != std::errc() || end != text.data() + text.size() || seconds < 1)
    throw Error("HF_HUB_DOWNLOAD_TIMEOUT is '{}': expected seconds, at least 1", printable(text));
  return std::min(seconds, 3600);
}

}  // namespace

HubOptions hub_options_from_environment() {
  HubOptions options;
  const std::string home = home_folder();
  options.cache = expand_home(variable("HF_HUB_CACHE"));
  if (options.cache.empty() && !home.empty()) options.cache = home + "/hub";
  if (const std::string endpoint = variable("HF_ENDPOINT"); !endpoint.empty()) options.endpoint = endpoint;
  options.token = token_of(home);
  for (const char* name : {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"})
    if (options.certificates.empty()) options.certificates = variable(name);
  options.offline = is_true(variable("HF_HUB_OFFLINE"));
  options.timeout_s = timeout_of(variable("HF_HUB_DOWNLOAD_TIMEOUT"), options.timeout_s);
  return options;
}

}  // namespace ingot
