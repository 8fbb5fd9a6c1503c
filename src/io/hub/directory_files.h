// Selects the files of a repository that make up a directory with safetensors, or with the model.bin of CTranslate2. Most files have fixed names. Two files name
// further files: modules.json of sentence-transformers names folders, and the index of a sharded model names the
// shards. Both must be local before the list is complete. Used for the Hub's listing and for the cache.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace ingot {

// True if a folder that may hold the model has config.json and weights. `paths`: the repository's, sorted.
bool has_weights(const std::vector<std::string>& paths);

// The files of the directory, each once, in the order of download. `paths` are those of the listing or of the cache,
// sorted. `at_hand(path)` returns the local path of a repository file and may download the file first; only
// modules.json and the index are requested. Shards are listed even if `paths` lacks them; the caller must check. Throws
// Error if modules.json or the index is invalid or leads outside the repository, or if the model's folder has no
// weights.
std::vector<std::string> directory_files(const std::string& repo, const std::vector<std::string>& paths,
                                         const std::function<std::string(const std::string& path)>& at_hand);

}  // namespace ingot
