// Selects the files of a repository that make up a model: a GGUF model by its quant tag, with all parts if split, or a
// safetensors directory (hub/directory_files.h). The rules use only file names, so they work for the Hub's listing and
// for the cache.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// "Q4_K_M" of "org-7b-q4_k_m-00001-of-00002.gguf", "UD-IQ2_XXS" of "UD-IQ2_XXS/model.gguf": the last quant type in the
// file's name, else in the folder's name; empty if neither has one.
std::string quant_label(std::string_view path);

// A GGUF model of the repository: a file, or the parts of a split one.
struct HubGguf {
  std::string label;               // the quant label, or the file's name without a label
  std::vector<std::string> files;  // in order; the first one is opened
  size_t n_parts = 1;              // according to the names; more than files.size() if parts are missing
};

// The GGUF models among the paths, in the same order. Projectors, importance matrices and draft heads are skipped.
std::vector<HubGguf> gguf_models(const std::vector<std::string>& paths);

struct HubChoice {
  std::vector<std::string> files;  // of the model and its projector; empty for a directory
  std::string open;                // the file to open; empty: the directory
  std::string label;               // "Q4_K_M", "safetensors"
  bool is_directory() const { return open.empty(); }
};

// Chooses from a repository's sorted paths. `file` names one file exactly. Otherwise `tag` selects the model, in upper
// or lower case: a quant label, a part of the file's name between dots and dashes, or "safetensors". Without both,
// chooses Q4_K_M, Q8_0 or the first GGUF model. If nothing matches, the Error lists the available models.
HubChoice choose_files(const std::string& repo, const std::vector<std::string>& paths, const std::string& tag,
                       const std::string& file);

}  // namespace ingot
