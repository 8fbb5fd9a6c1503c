// Which files of a repository make a model: one GGUF model of several, by its quant tag, with all parts of a split one;
// or a safetensors directory (hub/directory_files.h says which files). Rules as data, on names alone: the same for a
// listing and for the cache.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// "Q4_K_M" of "org-7b-q4_k_m-00001-of-00002.gguf", "UD-IQ2_XXS" of "UD-IQ2_XXS/model.gguf": the last quant type that
// the file's name has, else its folder's; empty when there is none.
std::string quant_label(std::string_view path);

// A GGUF model of the repository: a file, or the parts of a split one.
struct HubGguf {
  std::string label;               // its quant label, or the file's name when that has none
  std::vector<std::string> files;  // in order; the first one is opened
  size_t n_parts = 1;              // as the names say; files.size() is less when some are not there
};

// Of the paths, in their order. Projectors, importance matrices and draft heads are no models.
std::vector<HubGguf> gguf_models(const std::vector<std::string>& paths);

struct HubChoice {
  std::vector<std::string> files;  // none of a directory
  std::string open;                // the one to open; empty: the directory
  std::string label;               // "Q4_K_M", "safetensors"
  bool is_directory() const { return open.empty(); }
};

// Of a repository's paths, sorted. `file` names one exactly; else `tag` does, in any case of letters: a quant label, or
// a part of the file's name between dots and dashes, or "safetensors"; else Q4_K_M, Q8_0 or the first GGUF model there
// is. Throws Error, with what there is, when nothing fits.
HubChoice choose_files(const std::string& repo, const std::vector<std::string>& paths, const std::string& tag,
                       const std::string& file);

}  // namespace ingot
