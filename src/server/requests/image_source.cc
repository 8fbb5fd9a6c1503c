#include "server/requests/image_source.h"

#include <filesystem>

#include "base/ascii.h"
#include "base/base64.h"
#include "base/error.h"
#include "base/file.h"
#include "io/hub/public_fetch.h"
#include "server/requests/fields.h"
#include "server/requests/http.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> image_of_base64(std::string_view text, const std::string& where, const ImageLimits& limits) {
  if (text.size() / 4 * 3 > limits.max_bytes + 3)
    refuse_value(where, fmt::format("has about {} bytes; the limit of an image is {}: send a smaller one",
                                    text.size() / 4 * 3, limits.max_bytes));
  auto bytes = from_base64(text);
  if (!bytes) refuse_value(where, "is not Base64");
  return std::move(*bytes);
}

// data:image/png;base64,...
std::vector<std::byte> image_of_data_url(std::string_view url, const std::string& where, const ImageLimits& limits) {
  const size_t comma = url.find(',');
  if (comma == url.npos || !lower(url.substr(0, comma)).ends_with(";base64"))
    refuse_value(where, "must be a data URL in Base64: data:image/png;base64,...");
  return image_of_base64(url.substr(comma + 1), where, limits);
}

// file:///ABSOLUTE, or file:RELATIVE to the folder. Links are resolved before the check.
std::vector<std::byte> image_of_file(std::string_view url, const std::string& where, const ImagePolicy& policy,
                                     const ImageLimits& limits) {
  if (policy.folder.empty())
    refuse_value(where, "names a file, which this server does not read: send the image as data:image/png;base64,...");
  std::string_view name = url.substr(std::string_view("file:").size());
  if (name.starts_with("//")) name.remove_prefix(2);
  std::error_code failed;
  const fs::path folder = fs::canonical(policy.folder, failed);
  const fs::path path = failed ? fs::path() : fs::canonical(folder / fs::path(name), failed);
  const bool is_below =
      !failed && std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
  if (!is_below || !fs::is_regular_file(path, failed))
    refuse_value(where, "names a file that is not below the folder of images of this server");
  const std::string text = read_file(path.string(), limits.max_bytes);
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

std::vector<std::byte> image_of_web(const std::string& url, const std::string& where, const ImagePolicy& policy,
                                    const ImageLimits& limits) {
  if (!policy.fetches_urls)
    refuse_value(where, "is a URL, which this server does not fetch: send the image as data:image/png;base64,...");
  try {
    return fetch_public(url, {.max_bytes = limits.max_bytes, .timeout = policy.fetch_timeout});
  } catch (const Error& error) {
    refuse_value(where, fmt::format("cannot be fetched: {}", error.what()));
  }
}

}  // namespace

std::vector<std::byte> load_image_source(const std::string& source, bool is_data, const std::string& where,
                                         const ImagePolicy& policy, const ImageLimits& limits) {
  const std::string scheme = lower(source.substr(0, std::min<size_t>(source.find(':'), 16)));
  if (source.empty()) refuse_value(where, "is empty");
  if (scheme == "data") return image_of_data_url(source, where, limits);
  if (is_data) return image_of_base64(source, where, limits);
  if (scheme == "file") return image_of_file(source, where, policy, limits);
  if (scheme == "http" || scheme == "https") return image_of_web(source, where, policy, limits);
  refuse_value(where, "must begin with data:, https:// or http://");
}

}  // namespace ingot
