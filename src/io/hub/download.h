// One file from the Hub into the cache's blobs: resumed where it was cut, checked against its hash, and only then given
// its name.
#pragma once
#include <functional>
#include <string>

#include "io/hub/cache.h"
#include "io/hub/http.h"

namespace ingot {

struct HubDownload {
  HubRequest request;  // what it belongs to, for messages
  std::string url;
  std::string commit;
  HubFile file;
};

struct HubDownloadEvents {
  std::function<void(uint64_t n_bytes)> progress;  // how much of the file is there; may go back
  std::function<void()> waiting;                   // another process downloads it
};

// Returns when the blob is there, be it by another process. What has come stays as blobs/HASH.incomplete whatever
// happens, unless its hash is wrong. Throws HubInterrupted, or Error saying what to do.
void download_blob(HubHttp& http, const HubCache& cache, const HubDownload& download, const HubDownloadEvents& events);

}  // namespace ingot
