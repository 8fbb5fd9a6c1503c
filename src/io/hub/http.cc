#include "io/hub/http.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "base/ascii.h"
#include "base/check.h"
#include "io/hub/libcurl.h"

namespace ingot {
namespace {

constexpr int kMaxRedirects = 8, kMaxGetAttempts = 3;
constexpr uint64_t kMaxRetryWait_s = 30;
constexpr long kMaxConnect_s = 10;
constexpr const char* kInterrupted = "interrupted; the downloaded part is kept: repeat the command to continue";
constexpr const char* kOwnAuthority =
    "; where an authority of your own signs for this server, SSL_CERT_FILE names the file with its certificate";
constexpr size_t kMaxHeaderBytes = 64 << 10, kMaxRefusalBytes = 64 << 10;

// The parts of a URL, parsed by libcurl, which also makes the connection.
class Url {
 public:
  explicit Url(const std::string& text, const Url* base = nullptr)
      : handle_(base == nullptr ? libcurl().url() : libcurl().url_dup(base->handle_)), text_(text) {
    CHECK(handle_ != nullptr);
    if (libcurl().url_set(handle_, CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
      libcurl().url_cleanup(handle_);
      throw Error("'{}' is not an address (URL)", printable(text));
    }
  }
  ~Url() { libcurl().url_cleanup(handle_); }
  Url(const Url&) = delete;
  Url& operator=(const Url&) = delete;

  std::string part(CURLUPart which, unsigned flags = 0) const {
    char* value = nullptr;
    if (libcurl().url_get(handle_, which, &value, flags) != CURLUE_OK) return "";
    std::string copy = value;
    libcurl().free(value);
    return copy;
  }
  std::string scheme() const { return part(CURLUPART_SCHEME); }
  std::string origin() const {
    return scheme() + "://" + lower(part(CURLUPART_HOST)) + ":" + part(CURLUPART_PORT, CURLU_DEFAULT_PORT);
  }
  std::string whole() const { return part(CURLUPART_URL); }
  std::string shown() const {
    const std::string port = part(CURLUPART_PORT);
    return printable(scheme() + "://" + part(CURLUPART_HOST) + (port.empty() ? "" : ":" + port));
  }

 private:
  CURLU* handle_;
  const std::string text_;
};

// True for network failures; false for errors that a second attempt cannot fix.
bool is_cut(CURLcode code) {
  constexpr CURLcode kForGood[] = {CURLE_UNSUPPORTED_PROTOCOL, CURLE_URL_MALFORMAT,      CURLE_PEER_FAILED_VERIFICATION,
                                   CURLE_SSL_CERTPROBLEM,      CURLE_SSL_CACERT_BADFILE, CURLE_SSL_ISSUER_ERROR,
                                   CURLE_OUT_OF_MEMORY,        CURLE_FAILED_INIT};
  return std::find(std::begin(kForGood), std::end(kForGood), code) == std::end(kForGood);
}

HubHttpOptions without_slash(HubHttpOptions options) {
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  return options;
}

}  // namespace

struct HubHttp::Handle {
  Handle() : curl(libcurl().easy_init()) { CHECK(curl != nullptr); }
  ~Handle() { libcurl().easy_cleanup(curl); }
  CURL* curl;
};

// One request and its response. libcurl calls its callbacks; `failure` stores an exception thrown in a callback.
struct HubHttp::Transfer {
  CURL* curl;
  const std::function<bool()>& stopped;
  const std::map<std::string, std::string>& kept;  // headers of earlier redirects
  uint64_t from = 0;
  size_t max_bytes = 0;
  HubSink* sink = nullptr;
  HubResponse response;
  size_t header_bytes = 0;
  bool begun = false, interrupted = false;
  std::exception_ptr failure;

  template <class F>
  size_t guarded(size_t n, const F& f) {
    try {
      f();
      return n;
    } catch (...) {
      failure = std::current_exception();
      return n == 0 ? 1 : 0;  // any result other than n stops libcurl
    }
  }

  void on_header(std::string_view line) {
    header_bytes += line.size();
    if (header_bytes > kMaxHeaderBytes) throw Error("the server sent more than {} bytes of headers", kMaxHeaderBytes);
    if (line.starts_with("HTTP/")) response.headers.clear();  // earlier headers belong to a "100 Continue" or a proxy
    const size_t colon = line.find(':');
    if (colon != line.npos) response.headers[lower(line.substr(0, colon))] = trim(line.substr(colon + 1));
  }

  bool to_sink() const { return sink != nullptr && (response.status == 200 || response.status == 206); }

  // Called before the first byte of the body, or at the end of a response without a body.
  void begin() {
    if (begun) return;
    begun = true;
    long status = 0;
    libcurl().easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    response.status = static_cast<int>(status);
    response.headers.insert(kept.begin(), kept.end());
    if (to_sink()) sink->begin(response);
  }

  void on_body(std::span<const uint8_t> bytes) {
    begin();
    if (to_sink()) return sink->write(bytes);
    const bool good = response.status >= 200 && response.status < 300;
    if (good && response.body.size() + bytes.size() > max_bytes)
      throw Error("{}: the answer is longer than {} bytes", printable(response.url), max_bytes);
    const size_t room =
        (good ? max_bytes : kMaxRefusalBytes) - std::min(response.body.size(), good ? max_bytes : kMaxRefusalBytes);
    response.body.append(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), room));
  }

  static size_t header_callback(char* data, size_t size, size_t n, void* self) {
    auto* transfer = static_cast<Transfer*>(self);
    return transfer->guarded(size * n, [&] { transfer->on_header({data, size * n}); });
  }
  static size_t body_callback(char* data, size_t size, size_t n, void* self) {
    auto* transfer = static_cast<Transfer*>(self);
    return transfer->guarded(size * n, [&] { transfer->on_body({reinterpret_cast<const uint8_t*>(data), size * n}); });
  }
  static int progress_callback(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    auto* transfer = static_cast<Transfer*>(self);
    transfer->interrupted = transfer->stopped && transfer->stopped();
    return transfer->interrupted ? 1 : 0;
  }
};

HubHttp::HubHttp(HubHttpOptions options) : options_(without_slash(std::move(options))) {
  handle_ = std::make_unique<Handle>();
  const Url endpoint(options_.endpoint);
  if (endpoint.scheme() != "https" && endpoint.scheme() != "http")
    throw Error("'{}' is not an endpoint: give one that begins with https:// (HF_ENDPOINT or --hf-endpoint)",
                printable(options_.endpoint));
  for (char c : options_.token)
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f)
      throw Error("the access token (HF_TOKEN or --hf-token) has a blank or a control character in it");
}

HubHttp::~HubHttp() = default;

void HubHttp::check_stopped() const {
  if (options_.stopped && options_.stopped()) throw HubInterrupted("{}", kInterrupted);
}

void HubHttp::wait_after_failure(int n, const HubResponse* response) const {
  using std::chrono::milliseconds;
  const uint64_t wanted_s = response == nullptr ? 0 : parse_size(response->header("retry-after")).value_or(0);
  const int asked_s = static_cast<int>(std::min(wanted_s, kMaxRetryWait_s));
  if (asked_s >= kLongWait_s && options_.pausing)
    options_.pausing(fmt::format("{} answers HTTP {}", Url(response->url).shown(), response->status), asked_s);
  const auto until =
      std::chrono::steady_clock::now() + std::max(milliseconds(125 << std::min(n, 6)), milliseconds(1000 * asked_s));
  while (std::chrono::steady_clock::now() < until) {
    check_stopped();
    std::this_thread::sleep_for(milliseconds(20));
  }
}

void HubHttp::perform(const std::string& url, Transfer& transfer) {
  CURL* curl = handle_->curl;
  libcurl().easy_reset(curl);  // resets the options only; the connection stays open
  char detail[CURL_ERROR_SIZE] = "";
  const std::string range = fmt::format("{}-", transfer.from);
  struct curl_slist* headers = nullptr;
  if (!options_.token.empty() && Url(url).origin() == Url(options_.endpoint).origin())
    headers = libcurl().slist_append(headers, ("Authorization: Bearer " + options_.token).c_str());
  libcurl().easy_setopt(curl, CURLOPT_URL, url.c_str());
  libcurl().easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  libcurl().easy_setopt(curl, CURLOPT_USERAGENT, "ingot");
  libcurl().easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  libcurl().easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, std::min(static_cast<long>(options_.timeout_s), kMaxConnect_s));
  libcurl().easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  libcurl().easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.timeout_s));
  libcurl().easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
  libcurl().easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  libcurl().easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &Transfer::progress_callback);
  libcurl().easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  libcurl().easy_setopt(curl, CURLOPT_HEADERFUNCTION, &Transfer::header_callback);
  libcurl().easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  libcurl().easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Transfer::body_callback);
  libcurl().easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  if (!options_.certificates.empty()) libcurl().easy_setopt(curl, CURLOPT_CAINFO, options_.certificates.c_str());
  if (transfer.from > 0) libcurl().easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  const CURLcode code = libcurl().easy_perform(curl);
  libcurl().slist_free_all(headers);
  if (transfer.failure) std::rethrow_exception(transfer.failure);
  if (transfer.interrupted) throw HubInterrupted("{}", kInterrupted);
  if (code == CURLE_OK) return transfer.begin();
  const std::string message =
      fmt::format("{}: {}{}", Url(url).shown(), printable(*detail != 0 ? detail : libcurl().easy_strerror(code), 200),
                  code == CURLE_PEER_FAILED_VERIFICATION ? kOwnAuthority : "");
  if (is_cut(code)) throw HubCut("{}", message);
  throw Error("{}", message);
}

// Follows redirects. Keeps only the redirects' headers that describe the file.
HubResponse HubHttp::follow(const std::string& first, uint64_t from, size_t max_bytes, HubSink* sink) {
  const bool secure = Url(options_.endpoint).scheme() == "https";
  std::string url = Url(first).whole();
  std::map<std::string, std::string> kept;
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    check_stopped();
    const std::string scheme = Url(url).scheme();
    if (scheme != "https" && (scheme != "http" || secure))
      throw Error("{}: refused: only https addresses are allowed", printable(url));
    Transfer transfer{.curl = handle_->curl,
                      .stopped = options_.stopped,
                      .kept = kept,
                      .from = from,
                      .max_bytes = max_bytes,
                      .sink = sink};
    transfer.response.url = url;
    perform(url, transfer);
    HubResponse& response = transfer.response;
    const std::string location(response.header("location"));
    if (response.status < 300 || response.status >= 400 || location.empty()) return std::move(response);
    for (const char* name : {"x-linked-etag", "x-linked-size", "x-repo-commit"})
      if (const std::string_view value = response.header(name); !value.empty()) kept[name] = value;
    const Url base(url);
    url = Url(location, &base).whole();
  }
  throw Error("{}: more than {} redirects", printable(first), kMaxRedirects);
}

HubResponse HubHttp::get(const std::string& url, size_t max_bytes) {
  for (int attempt = 1;; ++attempt) {
    std::optional<HubResponse> response;
    try {
      response = follow(url, 0, max_bytes, nullptr);
      if (!is_transient(response->status) || attempt == kMaxGetAttempts) return *response;
    } catch (const HubCut&) {
      if (attempt == kMaxGetAttempts) throw;
    }
    wait_after_failure(attempt, response ? &*response : nullptr);
  }
}

HubResponse HubHttp::fetch(const std::string& url, uint64_t from, HubSink& sink) { return follow(url, from, 0, &sink); }

}  // namespace ingot
