// Downloads one file from the Hub to the cache's blobs: resumes a partial download, checks the hash, and renames the
// file to its final name only then.
#pragma once
#include <functional>
#include <string>

#include "io/hub/cache.h"
#include "io/hub/http.h"

namespace ingot {

struct HubDownload {
  HubRequest request;  // the request of the user, for messages
  std::string url;
  std::string commit;
  HubFile file;
};

struct HubDownloadEvents {
  std::function<void(uint64_t n_bytes)> progress;  // bytes of the file so far; the number may go back
  std::function<void()> waiting;                   // another process downloads it
};

// Returns when the blob is complete, also if another process downloaded it. Bytes that were received stay in
// blobs/HASH.incomplete after any failure, except a wrong hash. Throws HubInterrupted, or Error saying what to do.
void download_blob(HubHttp& http, const HubCache& cache, const HubDownload& download, const HubDownloadEvents& events);

}  // namespace ingot
