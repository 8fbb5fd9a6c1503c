#include "io/hub/api.h"

#include <algorithm>
#include <charconv>

#include "base/ascii.h"
#include "io/hub/name.h"
#include "io/json.h"

namespace ingot {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 50;

HubFile parse_entry(const Json& entry) {
  HubFile file{.path = std::string(entry.at("path").string())};
  if (!is_hub_path(file.path))
    throw entry.at("path").error("'{}' is not a path inside a repository", printable(file.path, 128));
  const auto lfs = entry.find("lfs");  // a large file: the outer "oid" is the hash of the pointer file
  const Json hash = lfs ? lfs->at("oid") : entry.at("oid");
  std::string_view digits = hash.string();
  if (digits.starts_with("sha256:")) digits.remove_prefix(7);
  if (!is_hex(digits, lfs ? 64 : 40))
    throw hash.error("'{}' is not a hash of {} digits", printable(hash.string(), 80), lfs ? 64 : 40);
  file.hash = digits;
  file.n_bytes = static_cast<uint64_t>((lfs ? lfs->at("size") : entry.at("size")).integer(0, kMaxFileBytes));
  return file;
}

// The server's own message, if any.
std::string said(const HubResponse& response) {
  const std::string_view message = response.header("x-error-message");
  return message.empty() ? "" : fmt::format(" ({})", printable(message, 160));
}

}  // namespace

std::string_view HubResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::string parse_revision(std::string_view body, const std::string& source) {
  const JsonDocument document = JsonDocument::parse(body, source);
  const Json sha = document.root().at("sha");
  if (!is_commit(sha.string())) throw sha.error("'{}' is not a commit of 40 digits", printable(sha.string(), 80));
  return std::string(sha.string());
}

void parse_tree(std::string_view body, const std::string& source, std::vector<HubFile>& files) {
  const JsonDocument document = JsonDocument::parse(body, source);
  for (const Json& entry : document.root().elements()) {
    if (entry.at("type").string() != "file") continue;
    if (files.size() == kMaxHubFiles) throw Error("{}: more than {} files", printable(source), kMaxHubFiles);
    files.push_back(parse_entry(entry));
  }
}

std::optional<std::string> next_page(std::string_view header) {
  while (!header.empty()) {
    const size_t first = header.find('<'), close = header.find('>', first == header.npos ? 0 : first);
    if (first == header.npos || close == header.npos) return std::nullopt;
    const size_t open = header.rfind('<', close);  // a URL has no angle brackets
    const size_t end = std::min(header.find(",", close), header.size());
    const std::string_view parameters = header.substr(close + 1, end - close - 1);
    if (parameters.find("rel=\"next\"") != parameters.npos)
      return std::string(header.substr(open + 1, close - open - 1));
    header.remove_prefix(end);
  }
  return std::nullopt;
}

std::optional<uint64_t> parse_size(std::string_view header) {
  const std::string_view text = trim(header);
  uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<ContentRange> parse_content_range(std::string_view header) {
  std::string_view text = trim(header);
  constexpr std::string_view kUnit = "bytes ";
  const size_t slash = text.find('/');
  if (!text.starts_with(kUnit) || slash == text.npos) return std::nullopt;
  const std::string_view range = text.substr(kUnit.size(), slash - kUnit.size()), total = text.substr(slash + 1);
  ContentRange result{.total = parse_size(total)};
  if (!result.total && trim(total) != "*") return std::nullopt;
  if (trim(range) == "*") return result;
  const size_t dash = range.find('-');
  if (dash == range.npos) return std::nullopt;
  result.begin = parse_size(range.substr(0, dash));
  if (!result.begin || !parse_size(range.substr(dash + 1))) return std::nullopt;
  return result;
}

void check_file_headers(const HubResponse& response, const HubFile& file, const std::string& commit) {
  const std::string_view said_commit = trim(response.header("x-repo-commit"));
  if (!said_commit.empty() && said_commit != commit)
    throw Error("'{}': the server answered for commit {}, not {}: try again", printable(file.path),
                printable(said_commit, 64), commit);
  std::string_view etag = trim(response.header("x-linked-etag"));
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
  if (!etag.empty() && etag != file.hash)
    throw Error("'{}': the server has a file with the hash {}, but lists {}: try again later", printable(file.path),
                printable(etag, 80), file.hash);
  const auto range = parse_content_range(response.header("content-range"));
  const auto length = response.status == 200 ? parse_size(response.header("content-length")) : std::nullopt;
  for (const auto& size : {parse_size(response.header("x-linked-size")), range ? range->total : std::nullopt, length})
    if (size && *size != file.n_bytes)
      throw Error("'{}': the server has {} bytes, but lists {}: try again later", printable(file.path), *size,
                  file.n_bytes);
}

Error hub_refusal(const HubRequest& q, const HubResponse& response) {
  const std::string repo = printable(q.repo), page = q.endpoint + "/" + repo;
  const std::string_view code = response.header("x-error-code"), message = response.header("x-error-message");
  const int status = response.status;
  if (code == "GatedRepo")
    return Error(
        "{}: its licence has to be accepted first: do so at {}, then give an access token in HF_TOKEN or --hf-token "
        "(HTTP {})",
        repo, page, status);
  if (code == "RevisionNotFound" || (status == 404 && code.empty() && q.file.empty() && q.revision != "main"))
    return Error("{} has no revision '{}': check --revision (HTTP {})", repo, printable(q.revision), status);
  if (code == "EntryNotFound" || (status == 404 && !q.file.empty()))
    return Error("{} has no file '{}' at revision '{}' (HTTP {})", repo, printable(q.file), printable(q.revision),
                 status);
  if (status == 401 && (q.has_token || message.find("Invalid credentials") != message.npos))
    return Error(
        "{}: the access token was refused: make a new one at {}/settings/tokens, and check that {} exists (HTTP 401){}",
        repo, q.endpoint, page, said(response));
  if (status == 401 || code == "RepoNotFound" || status == 404)
    return Error(
        "there is no repository {} for you: check the name at {}; a private or gated one needs an access token in "
        "HF_TOKEN or --hf-token (HTTP {})",
        repo, page, status);
  if (status == 403)
    return Error("{}: access denied: check at {} that you may read it, and that the token in HF_TOKEN may (HTTP 403){}",
                 repo, page, said(response));
  if (status == 429)
    return Error(
        "{}: too many requests: wait some minutes, or give an access token in HF_TOKEN or --hf-token (HTTP 429)", repo);
  return Error("{}: {} answered with HTTP {}{}: try again later", repo, q.endpoint, status, said(response));
}

bool is_transient(int status) {
  return status == 408 || status == 429 || (status >= 500 && status <= 504 && status != 501);
}

std::string url_encode(std::string_view text, std::string_view keep) {
  std::string out;
  for (char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
                       c == '.' || c == '_' || c == '~';
    if (plain || keep.find(c) != keep.npos)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace ingot
