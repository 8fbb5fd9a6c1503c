#include "io/gguf/projector.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/ascii.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

bool has_text(const std::string& name, const char* text) { return name.find(text) != std::string::npos; }

// The smallest is the best: numbers of the tower are small, so f16 loses nothing.
int rank_of(const std::string& name) {
  if (has_text(name, "bf16")) return 1;
  if (has_text(name, "f16")) return 0;
  return has_text(name, "f32") ? 2 : 3;
}

// "UD-Q2_K_XL", "BF16".
bool names_a_quantization(const std::string& name) {
  for (size_t i = 0; i + 1 < name.size(); ++i)
    if (name[i] == 'q' && std::isdigit(static_cast<unsigned char>(name[i + 1]))) return true;
  return has_text(name, "f16") || has_text(name, "f32");
}

std::string projector_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  const std::string name = projector_of(names);
  return name.empty() ? "" : (folder / name).string();
}

}  // namespace

std::string projector_of(const std::vector<std::string>& paths) {
  std::string best;
  int best_rank = 4;
  for (const std::string& path : paths) {
    const std::string name = lower(path.substr(path.rfind('/') + 1));
    if (!name.ends_with(".gguf") || !has_text(name, "mmproj")) continue;
    if (const int rank = rank_of(name); rank < best_rank) best = path, best_rank = rank;
  }
  return best;
}

std::string find_projector(const std::string& model_path) {
  if (!model_path.ends_with(".gguf")) return "";
  const fs::path folder = fs::absolute(model_path).parent_path();
  const std::string beside = projector_in(folder);
  return beside.empty() && names_a_quantization(lower(folder.filename().string())) ? projector_in(folder.parent_path())
                                                                                   : beside;
}

}  // namespace ingot
