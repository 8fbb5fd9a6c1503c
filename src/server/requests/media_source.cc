#include "server/requests/media_source.h"

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

// What the file of a request may be.
struct Wanted {
  MediaKind kind;
  uint64_t max_bytes;
};

// As a client sends one.
const char* example_of(MediaKind kind) {
  return kind == MediaKind::kImage ? "data:image/png;base64,..." : "data:audio/wav;base64,...";
}

std::vector<std::byte> bytes_of_base64(std::string_view text, const std::string& where, const Wanted& wanted) {
  if (text.size() / 4 * 3 > wanted.max_bytes + 3)
    refuse_value(where, fmt::format("has about {} bytes; the limit of {} is {}: send a smaller one",
                                    text.size() / 4 * 3, facts_of(wanted.kind).names, wanted.max_bytes));
  auto bytes = from_base64(text);
  if (!bytes) refuse_value(where, "is not Base64");
  return std::move(*bytes);
}

// data:image/png;base64,...
std::vector<std::byte> bytes_of_data_url(std::string_view url, const std::string& where, const Wanted& wanted) {
  const size_t comma = url.find(',');
  if (comma == url.npos || !lower(url.substr(0, comma)).ends_with(";base64"))
    refuse_value(where, fmt::format("must be a data URL in Base64: {}", example_of(wanted.kind)));
  return bytes_of_base64(url.substr(comma + 1), where, wanted);
}

// file:///ABSOLUTE, or file:RELATIVE to the folder. Links are resolved before the check.
std::vector<std::byte> bytes_of_file(std::string_view url, const std::string& where, const MediaPolicy& policy,
                                     const Wanted& wanted) {
  if (policy.folder.empty())
    refuse_value(where, fmt::format("names a file, which this server does not read: send the {} as {}",
                                    facts_of(wanted.kind).name, example_of(wanted.kind)));
  std::string_view name = url.substr(std::string_view("file:").size());
  if (name.starts_with("//")) name.remove_prefix(2);
  std::error_code failed;
  const fs::path folder = fs::canonical(policy.folder, failed);
  const fs::path path = failed ? fs::path() : fs::canonical(folder / fs::path(name), failed);
  const bool is_below =
      !failed && std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
  if (!is_below || !fs::is_regular_file(path, failed))
    refuse_value(where, "names a file that is not below the folder of images of this server");
  const std::string text = read_file(path.string(), wanted.max_bytes);
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

std::vector<std::byte> bytes_of_web(const std::string& url, const std::string& where, const MediaPolicy& policy,
                                    const Wanted& wanted) {
  if (!policy.fetches_urls)
    refuse_value(where, fmt::format("is a URL, which this server does not fetch: send the {} as {}",
                                    facts_of(wanted.kind).name, example_of(wanted.kind)));
  try {
    return fetch_public(url, {.max_bytes = wanted.max_bytes, .timeout = policy.fetch_timeout});
  } catch (const Error& error) {
    refuse_value(where, fmt::format("cannot be fetched: {}", error.what()));
  }
}

}  // namespace

std::vector<std::byte> load_media_source(const std::string& source, bool is_data, const std::string& where,
                                         const MediaPolicy& policy, MediaKind kind, uint64_t max_bytes) {
  const Wanted wanted{kind, max_bytes};
  const std::string scheme = lower(source.substr(0, std::min<size_t>(source.find(':'), 16)));
  if (source.empty()) refuse_value(where, "is empty");
  if (scheme == "data") return bytes_of_data_url(source, where, wanted);
  if (is_data) return bytes_of_base64(source, where, wanted);
  if (scheme == "file") return bytes_of_file(source, where, policy, wanted);
  if (scheme == "http" || scheme == "https") return bytes_of_web(source, where, policy, wanted);
  refuse_value(where, "must begin with data:, https:// or http://");
}

}  // namespace ingot
