// What the Hugging Face cache holds, and taking some of it away: `ingot ls` and `ingot rm`. A blob goes when no
// snapshot links to it any more.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/hub/name.h"

namespace ingot {

// A model in one snapshot: a GGUF file with its parts, or a safetensors directory; or what is no model for us.
struct HubEntry {
  std::string repo;
  std::string commit;                   // empty: of no snapshot yet
  std::vector<std::string> revisions;   // that the cache knows the commit by
  // "Q4_K_M", "safetensors"; "-" for other files, "partial" for downloads that were cut
  std::string label;
  std::string path;                     // to open; empty when it is no model
  uint64_t n_bytes = 0;
  int64_t last_used = 0;                // seconds since 1970
};

// Of all model repositories in the cache, by name. What cannot be read is passed over.
std::vector<HubEntry> list_cache(const std::string& root);

// Paths to take away, in the order to do it in.
struct HubRemoval {
  std::vector<std::string> files;    // links, blobs and refs
  std::vector<std::string> folders;  // with all in them
  uint64_t freed_bytes = 0;
};

// A whole repository; or one model of it (by tag), or one revision, or both. Throws Error when there is no such thing,
// or another process is downloading it.
HubRemoval plan_removal(const std::string& root, const HubName& name, const std::string& revision);
void remove(const HubRemoval& removal);

}  // namespace ingot
