// The Hugging Face Hub: resolves `org/repo[:quant]` to a local path. Missing files are downloaded, checked and stored
// in the cache, whose layout is that of huggingface_hub and llama.cpp (hub/cache.h). Called by all commands that take a
// model.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "io/hub/api.h"
#include "io/hub/name.h"

namespace ingot {

struct HubOptions {
  std::string endpoint = "https://huggingface.co";
  std::string cache;               // the folder that contains models--ORG--REPO
  std::string token;               // empty: no token
  std::string revision = "main";   // branch, tag or commit
  std::string file;                // use this file of the repository, whatever the tag
  bool offline = false;            // use the cache only
  std::string certificates;        // a file of trusted authorities; empty: the system's
  int timeout_s = 30;              // the longest wait for a byte
};

// Reads HF_ENDPOINT; HF_HUB_CACHE, or HF_HOME/hub, or ~/.cache/huggingface/hub; HF_TOKEN, or the file HF_HOME/token;
// HF_HUB_OFFLINE; HF_HUB_DOWNLOAD_TIMEOUT; SSL_CERT_FILE, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE. Throws Error if no
// variable names the cache and there is no home directory.
HubOptions hub_options_from_environment();

struct HubEvents {
  // Bytes on the disk and in total, of the files that were incomplete; `kept` bytes were on the disk before the call.
  std::function<void(uint64_t done, uint64_t total, uint64_t kept)> progress;
  std::function<void(const std::string& path)> waiting;  // once for each file that another process downloads
  std::function<void(const std::string& why, int seconds)> pausing;  // the server asks for a pause before the next try
  std::function<bool()> stopped;                         // returning true throws HubInterrupted
};

struct HubModel {
  std::string repo, commit;
  std::string label;                 // "Q4_K_M", "safetensors"
  std::string path;                  // file or directory to open, in the cache
  std::vector<HubFile> files;        // offline: without hashes
  uint64_t downloaded_bytes = 0;
};

// Asks the Hub for the revision's current commit and downloads the missing files. Throws HubInterrupted (hub/http.h) or
// Error.
HubModel pull_model(const HubName& name, const HubOptions& options, const HubEvents& events);

// Finds the model in the cache only. Throws Error if the model is missing or incomplete.
HubModel cached_model(const HubName& name, const HubOptions& options);

// As pull_model; if the Hub cannot be reached and the cache has the model, returns the cached model with a warning.
// Offline: as cached_model.
HubModel find_model(const HubName& name, const HubOptions& options, const HubEvents& events);

}  // namespace ingot
