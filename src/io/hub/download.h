// Downloads one file from the Hub to the cache's blobs. Resumes a partial download, and renames the file to its final
// name only after checking the hash.
#pragma once
#include <functional>
#include <string>

#include "io/hub/cache.h"
#include "io/hub/http.h"

namespace ingot {

struct HubDownload {
  HubRequest request;  // the user's request, for messages
  std::string url;
  std::string commit;
  HubFile file;
};

struct HubDownloadEvents {
  std::function<void(uint64_t n_bytes)> progress;  // bytes of the file so far; may decrease
  std::function<void()> waiting;                   // called while another process downloads the file
};

// Returns when the blob is complete, even if another process downloaded it. After a failure, the received bytes stay in
// blobs/HASH.incomplete, except after a wrong hash. Throws HubInterrupted or Error.
void download_blob(HubHttp& http, const HubCache& cache, const HubDownload& download, const HubDownloadEvents& events);

}  // namespace ingot
