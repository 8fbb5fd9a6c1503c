// The Hugging Face Hub: `org/repo[:quant]` becomes a path that opens. What the cache lacks is downloaded, checked and
// kept there, in the layout that huggingface_hub and llama.cpp share (hub/cache.h). Called by the command line,
// wherever a model is named.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "io/hub/api.h"
#include "io/hub/name.h"

namespace ingot {

struct HubOptions {
  std::string endpoint = "https://huggingface.co";
  std::string cache;               // the folder with models--ORG--REPO in it
  std::string token;               // empty: none
  std::string revision = "main";   // branch, tag or commit
  std::string file;                // this file of the repository, rather than one chosen by the tag
  bool offline = false;            // the cache alone
  std::string certificates;        // a file of the authorities to trust; empty: the system's
  int timeout_s = 30;              // without a byte
};

// HF_ENDPOINT; HF_HUB_CACHE, or HF_HOME/hub, or ~/.cache/huggingface/hub; HF_TOKEN, or the file HF_HOME/token;
// HF_HUB_OFFLINE; HF_HUB_DOWNLOAD_TIMEOUT; SSL_CERT_FILE, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE. Throws Error when there
// is no home directory either.
HubOptions hub_options_from_environment();

struct HubEvents {
  // Bytes on the disk and in all, of the files that were not complete; `kept` of them were there before.
  std::function<void(uint64_t done, uint64_t total, uint64_t kept)> progress;
  std::function<void(const std::string& path)> waiting;  // once for a file that another process downloads
  std::function<void(const std::string& why, int seconds)> pausing;  // a server wants to be asked later, and will be
  std::function<bool()> stopped;                         // true: leave by HubInterrupted
};

struct HubModel {
  std::string repo, commit;
  std::string label;                 // "Q4_K_M", "safetensors"
  std::string path;                  // of the file or directory to open, in the cache
  std::vector<HubFile> files;        // when offline: without hashes
  uint64_t downloaded_bytes = 0;
};

// Asks the Hub what the revision is now, and brings what is missing. Throws HubInterrupted (hub/http.h) or Error.
HubModel pull_model(const HubName& name, const HubOptions& options, const HubEvents& events);

// The same from the cache alone. Throws Error when it is not there, or not complete.
HubModel cached_model(const HubName& name, const HubOptions& options);

// pull_model; when the Hub cannot be reached and the cache has the model, that one, with a warning. Offline:
// cached_model.
HubModel find_model(const HubName& name, const HubOptions& options, const HubEvents& events);

}  // namespace ingot
