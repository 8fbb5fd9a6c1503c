// Which files of a repository make a safetensors directory. Most have fixed names. Two kinds of files name others:
// modules.json of sentence-transformers names folders, and the index of a model in shards names the shards. Such a file
// must be at hand before the list is complete. Used by hub for the Hub's listing and for the cache.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace ingot {

// Does a folder that may hold the model have config.json and safetensors weights? `paths` are the repository's, sorted.
bool has_safetensors(const std::vector<std::string>& paths);

// The files to have, each once, in the order to fetch them in. `paths` are those of the listing or of the cache,
// sorted. `at_hand(path)` returns where a file of the repository lies on the disk, and may download it first; it is
// called for modules.json and the index alone. Shards are listed even where `paths` lacks them: the caller looks.
// Throws Error for a modules.json or an index that is broken or names something outside of the repository, and where
// the folder of the model has no weights.
std::vector<std::string> directory_files(const std::string& repo, const std::vector<std::string>& paths,
                                         const std::function<std::string(const std::string& path)>& at_hand);

}  // namespace ingot
