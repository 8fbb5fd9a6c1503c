// Lists the Hugging Face cache and removes models from it: `ingot ls` and `ingot rm`. A blob is removed when no
// snapshot links to it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/hub/name.h"

namespace ingot {

// A model in one snapshot (a GGUF file with its parts, or a safetensors directory), or files that are not a model.
struct HubEntry {
  std::string repo;
  std::string commit;                   // empty: the files belong to no snapshot yet
  std::vector<std::string> revisions;   // the refs that name the commit
  // "Q4_K_M", "safetensors"; "-" for other files, "partial" for interrupted downloads
  std::string label;
  std::string path;                     // path to open; empty if the entry is not a model
  uint64_t n_bytes = 0;
  int64_t last_used = 0;                // seconds since 1970
};

// The entries of all model repositories in the cache, sorted by name. Skips unreadable files.
std::vector<HubEntry> list_cache(const std::string& root);

// Paths to remove, in the order of removal.
struct HubRemoval {
  std::vector<std::string> files;    // links, blobs and refs
  std::vector<std::string> folders;  // removed with their contents
  uint64_t freed_bytes = 0;
};

// Plans the removal of a whole repository, of one of its models (by tag), of one revision, or of one model in one
// revision. Throws Error if nothing in the cache matches, or if another process is downloading a matching file.
HubRemoval plan_removal(const std::string& root, const HubName& name, const std::string& revision);
void remove(const HubRemoval& removal);

}  // namespace ingot
