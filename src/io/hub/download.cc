#include "io/hub/download.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/log.h"
#include "base/system_file.h"
#include "io/digest.h"
#include "io/hub/name.h"

namespace ingot {
namespace {

constexpr int kMaxFailures = 5;               // in a row, without progress in between
constexpr uint64_t kLeastProgress = 1 << 20;  // new bytes that count as progress; at most a thousandth of the file

// blobs/HASH.incomplete: the bytes received so far, and their hash.
class Partial final : public HubSink {
 public:
  Partial(std::string path, const HubDownload& download, const HubDownloadEvents& events)
      : path_(std::move(path)), download_(download), events_(events), digest_(new_digest()) {
    file_ = open_to_update(path_);
    if (!file_) fail("open");
    hash_partial();
  }

  uint64_t size() const { return size_; }

  void reset() {
    if (!make_empty(file_)) fail("empty");
    size_ = 0;
    digest_ = new_digest();
  }

  void begin(const HubResponse& response) override {
    check_file_headers(response, download_.file, download_.commit);
    const uint64_t asked = size_;
    if (response.status == 200) {  // the server does not resume: start again
      if (asked > 0) reset();
      return;
    }
    const auto range = parse_content_range(response.header("content-range"));
    if (range && range->begin == asked) return;
    reset();
    throw HubCut("the server sent '{}' when asked for the bytes from {} on",
                 printable(response.header("content-range"), 80), asked);
  }

  void write(std::span<const uint8_t> bytes) override {
    if (bytes.size() > download_.file.n_bytes - size_) {
      reset();
      throw Error("'{}': the server sends more than the {} bytes that it lists: try again later",
                  printable(download_.file.path), download_.file.n_bytes);
    }
    digest_.update(bytes);
    if (!write_all(file_, bytes)) fail("write");
    size_ += bytes.size();
    if (events_.progress) events_.progress(size_);
  }

  std::string hash() { return digest_.finish(); }
  void discard() {
    file_.close();
    std::remove(path_.c_str());
  }

  void move_to(const std::string& blob) {
    if (!sync_file(file_)) fail("write");
    file_.close();
    if (!replace_file(path_, blob)) fail("rename");
  }

 private:
  Digest new_digest() const {
    return download_.file.hash.size() == 64 ? Digest::sha256() : Digest::git_blob(download_.file.n_bytes);
  }

  // Hashes the bytes of an earlier run. If there are more bytes than the file has, starts again.
  void hash_partial() {
    std::vector<uint8_t> buffer(1 << 20);
    for (;;) {
      const ptrdiff_t n = read_some(file_, buffer.data(), buffer.size());
      if (n < 0) fail("read");
      if (n == 0) break;
      size_ += static_cast<uint64_t>(n);
      if (size_ > download_.file.n_bytes) return reset();
      digest_.update({buffer.data(), static_cast<size_t>(n)});
    }
    if (events_.progress) events_.progress(size_);
  }

  [[noreturn]] void fail(const char* doing) const {
    const int error = errno;
    throw Error("cannot {} '{}': {}{}", doing, printable(path_), std::strerror(error),
                is_full(error) ? "; the downloaded part is kept: free some space (`ingot ls`, `ingot rm`), then repeat "
                                 "the command to continue"
                               : "");
  }

  const std::string path_;
  const HubDownload& download_;
  const HubDownloadEvents& events_;
  Digest digest_;
  uint64_t size_ = 0;
  FileHandle file_;
};

// Requests the missing bytes until the file is complete. Bytes received again after a reset do not count as progress.
// Otherwise a server that cuts connections and does not resume would cause an endless loop.
void fill(HubHttp& http, const HubDownload& download, Partial& partial) {
  const uint64_t step = std::min(kLeastProgress, download.file.n_bytes / 1000 + 1);
  uint64_t mark = partial.size();  // the largest size so far
  for (int failures = 0; partial.size() < download.file.n_bytes;) {
    std::optional<HubResponse> response;
    std::string why = "the connection ended early";
    try {
      response = http.fetch(download.url, partial.size(), partial);
      if (response->status == 416) {  // the server has no such range: the partial file is not of this file
        partial.reset();
        why = "HTTP 416";
      } else if (response->status != 200 && response->status != 206) {
        why = fmt::format("HTTP {}", response->status);
        if (!is_transient(response->status) || failures + 1 == kMaxFailures)
          throw hub_refusal(download.request, *response);
      }
    } catch (const HubCut& cut) {
      why = cut.what();
    }
    if (partial.size() == download.file.n_bytes) return;
    failures = partial.size() >= mark + step ? 1 : failures + 1;
    if (failures == 1) mark = std::max(mark, partial.size());
    log_info("{}: {} after {} of {} bytes; attempt {}", printable(download.file.path), why, partial.size(),
             download.file.n_bytes, failures + 1);
    if (failures == kMaxFailures)
      throw Error(
          "'{}': {}: gave up after {} attempts at byte {} of {}; the downloaded part is kept: repeat the command to "
          "continue",
          printable(download.file.path), why, kMaxFailures, partial.size(), download.file.n_bytes);
    http.wait_after_failure(failures, response ? &*response : nullptr);
  }
}

}  // namespace

void download_blob(HubHttp& http, const HubCache& cache, const HubDownload& download, const HubDownloadEvents& events) {
  const HubFile& file = download.file;
  const HubLock lock(cache.lock(file.hash), [&] {
    http.check_stopped();
    if (events.waiting) events.waiting();
  });
  if (cache.has_blob(file)) return;
  Partial partial(cache.incomplete(file.hash), download, events);
  const bool resumed = partial.size() > 0;
  fill(http, download, partial);
  std::string hash = partial.hash();
  if (hash != file.hash && resumed) {  // the part from an earlier run may be wrong
    partial.reset();
    fill(http, download, partial);
    hash = partial.hash();
  }
  if (hash != file.hash) {
    partial.discard();
    throw Error(
        "'{}': the downloaded file has the hash {}, not {}: it was damaged on the way and is not kept; try again",
        printable(file.path), hash, file.hash);
  }
  partial.move_to(cache.blob(file.hash));
}

}  // namespace ingot
