// Parses and checks the Hub's responses: JSON (a revision, the files of a commit), headers, and errors with advice for
// the user. Contains no network code: http.h makes the requests.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace ingot {

struct HubFile {
  std::string path;      // path in the repository; is_hub_path() is true
  uint64_t n_bytes = 0;
  std::string hash;      // 64 digits: SHA-256 of the bytes; 40: git's hash. Also the blob's name in the cache
};

struct HubResponse {
  int status = 0;
  std::string url;                             // the URL of the response, after redirects
  std::map<std::string, std::string> headers;  // names in lower case; includes the redirects' x-... headers
  std::string body;

  std::string_view header(const std::string& name) const;  // empty if the header is absent
};

inline constexpr size_t kMaxHubJsonBytes = 16 << 20, kMaxHubFiles = 100'000;

// Parses the response of /api/models/REPO/revision/REVISION and returns the commit. `source` is for messages. Throws
// Error.
std::string parse_revision(std::string_view body, const std::string& source);

// Appends the files from the response of /api/models/REPO/tree/COMMIT. Throws Error, also for a path outside the
// repository.
void parse_tree(std::string_view body, const std::string& source, std::vector<HubFile>& files);

// The URL with rel="next" in a Link header.
std::optional<std::string> next_page(std::string_view link_header);

// Parses "bytes 100-199/200" or "bytes */200". `begin` is nothing for a range of *, `total` for a total of *.
struct ContentRange {
  std::optional<uint64_t> begin, total;
};
std::optional<ContentRange> parse_content_range(std::string_view header);

std::optional<uint64_t> parse_size(std::string_view header);

// Throws Error if the headers contradict the request: another commit, size or hash.
void check_file_headers(const HubResponse& response, const HubFile& file, const std::string& commit);

// The subject of a request, for the messages of hub_refusal().
struct HubRequest {
  std::string repo, revision, endpoint;
  std::string file;  // empty: the request was about the repository
  bool has_token = false;
};
Error hub_refusal(const HubRequest& request, const HubResponse& response);

// True if the same request may succeed later.
bool is_transient(int status);

// "org/my repo" -> "org/my%20repo": encodes all characters except letters, digits, -._~ and those in `keep`.
std::string url_encode(std::string_view text, std::string_view keep);

}  // namespace ingot
