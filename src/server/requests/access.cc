#include "server/requests/access.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/system_file.h"

namespace ingot {
namespace {

bool equal_in_constant_time(std::string_view secret, std::string_view given) {
  unsigned difference = secret.size() != given.size();
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(secret[i % secret.size()]);
  return difference == 0;
}

int64_t changed_at(const std::string& path) {
  const auto status = status_of(path);
  return status ? status->modified_ns : 0;
}

// The host name of an authority or origin: "http://localhost:8080" -> "localhost".
std::string_view host_of(std::string_view authority) {
  if (const size_t scheme = authority.find("://"); scheme != authority.npos) authority.remove_prefix(scheme + 3);
  if (authority.starts_with('[')) return authority.substr(0, std::min(authority.find(']') + 1, authority.size()));
  return authority.substr(0, authority.find(':'));
}

// Names of hosts ignore the case, and may end with a dot (RFC 1034).
bool is_this_machine(std::string_view name) {
  std::string host = lower(name);
  if (host.ends_with('.')) host.pop_back();
  const bool is_v4 = host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "[::1]" || is_v4;
}

}  // namespace

ApiKeys::ApiKeys(std::vector<std::string> keys, std::string file) : own_(std::move(keys)), file_(std::move(file)) {
  for (const std::string& key : own_)
    if (key.empty()) throw UsageError("an API key is empty");
  if (!file_.empty()) changed_ns_ = changed_at(file_);
  keys_ = read();
}

std::vector<std::string> ApiKeys::read() const {
  std::vector<std::string> keys = own_;
  if (file_.empty()) return keys;
  const std::string text = read_file(file_, 1 << 20);
  const size_t before = keys.size();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    line = line.substr(0, line.find('#'));
    if (const std::string_view key = trim(line); !key.empty()) keys.emplace_back(key);
    begin = end + 1;
  }
  if (keys.size() == before) throw Error("{}: the file has no API key; write one key per line", printable(file_));
  return keys;
}

void ApiKeys::reload_if_changed() {
  if (file_.empty()) return;
  const int64_t changed = changed_at(file_);
  if (changed == changed_ns_) return;
  changed_ns_ = changed;
  try {
    std::vector<std::string> keys = read();
    std::lock_guard lock(mutex_);
    keys_ = std::move(keys);
    log_info("reloaded {} API keys", keys_.size());
  } catch (const Error& error) {
    log_warn("the API keys were not reloaded: {}", error.what());
  }
}

bool ApiKeys::empty() const {
  std::lock_guard lock(mutex_);
  return keys_.empty();
}

// The key that a browser shows for a WebSocket, in its list of protocols, as in OpenAI's API.
static std::string_view key_of_protocols(std::string_view list) {
  constexpr std::string_view kMark = "openai-insecure-api-key.";
  const size_t at = list.find(kMark);
  if (at == list.npos) return "";
  list.remove_prefix(at + kMark.size());
  return list.substr(0, list.find_first_of(", "));
}

std::string ApiKeys::shown(const HttpRequest& request) {
  constexpr std::string_view kScheme = "bearer ";
  const auto same = [](char a, char b) { return (a | 0x20) == (b | 0x20); };
  std::string_view shown;
  for (const auto& [name, value] : request.headers) {
    std::string_view key = value;
    if (name == "authorization") {
      const bool is_bearer = key.size() >= kScheme.size() && key[kScheme.size() - 1] == ' ' &&
                             std::equal(kScheme.begin(), kScheme.end() - 1, key.begin(), same);
      if (!is_bearer) return "";
      key.remove_prefix(kScheme.size());
    } else if (name == "sec-websocket-protocol") {
      key = key_of_protocols(value);
      if (key.empty()) continue;
    } else if (name != "x-api-key") {
      continue;
    }
    if (!shown.empty() && key != shown) return "";  // two different keys: the request is ambiguous
    shown = key;
  }
  return std::string(shown);
}

bool ApiKeys::accept(const HttpRequest& request) const {
  const std::string given = shown(request);
  std::lock_guard lock(mutex_);
  if (keys_.empty()) return true;
  bool found = false;
  for (const std::string& key : keys_) found |= equal_in_constant_time(key, given);
  return found && !given.empty();
}

bool Origins::allows_all() const { return std::ranges::find(allowed_, "*") != allowed_.end(); }

bool Origins::allows(const HttpRequest& request) const {
  const std::string* origin = request.header("origin");
  if (!origin || allows_all()) return true;
  if (std::ranges::find(allowed_, *origin) != allowed_.end()) return true;
  const std::string* host = request.header("host");
  const size_t scheme = origin->find("://");
  const bool is_own = host && scheme != origin->npos && std::string_view(*origin).substr(scheme + 3) == *host;
  return is_own || is_this_machine(host_of(*origin));
}

HttpHeaders Origins::headers(const HttpRequest& request) const {
  const std::string* origin = request.header("origin");
  if (!origin || !allows(request)) return {};
  // Credentials are never allowed. Pages send the key in a header instead.
  return {{"Access-Control-Allow-Origin", allows_all() ? "*" : *origin},
          {"Vary", "Origin"},
          {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"}};
}

bool is_local_host(const HttpRequest& request) {
  const std::string* host = request.header("host");
  return !host || is_this_machine(host_of(*host));
}

}  // namespace ingot
