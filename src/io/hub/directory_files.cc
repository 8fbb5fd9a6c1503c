#include "io/hub/directory_files.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "io/hub/name.h"
#include "io/huggingface/modules.h"

namespace ingot {
namespace {

constexpr size_t kMaxIndexBytes = 256'000'000, kMaxModulesBytes = 1'000'000, kMaxModules = 64;

constexpr const char* kModules = "modules.json";
constexpr const char* kConfig = "config.json";
constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kCt2Weights = "model.bin";  // of CTranslate2, if a vocabulary is beside it
constexpr std::string_view kCt2Vocabularies[] = {"vocabulary.json", "vocabulary.txt"};

// The files read from the repository's root folder, even if the model is in another folder.
constexpr std::string_view kWholeFiles[] = {kModules, "config_sentence_transformers.json"};

// The files read from the model's folder, besides the weights and kHfTextOptionFiles. Code and pickles are never read.
constexpr std::string_view kModelFiles[] = {
    kConfig,
    "generation_config.json",
    kTokenizer,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "chat_template.json",
    "chat_template.jinja",
    "quantize_config.json",
    "hf_quant_config.json",
};

// The files read from the folder of another module: pooling, a dense layer.
constexpr std::string_view kModuleFiles[] = {kConfig, kOneFile};

bool contains(const std::vector<std::string>& sorted, const std::string& path) {
  return std::binary_search(sorted.begin(), sorted.end(), path);
}

bool has_safetensors(const std::vector<std::string>& paths, const std::string& prefix) {
  return contains(paths, prefix + kOneFile) || contains(paths, prefix + kIndex);
}

bool has_ct2(const std::vector<std::string>& paths, const std::string& prefix) {
  return contains(paths, prefix + kCt2Weights) && contains(paths, prefix + kTokenizer) &&
         std::ranges::any_of(kCt2Vocabularies,
                             [&](std::string_view name) { return contains(paths, prefix + std::string(name)); });
}

bool has_model(const std::vector<std::string>& paths, const std::string& prefix) {
  return contains(paths, prefix + kConfig) && (has_safetensors(paths, prefix) || has_ct2(paths, prefix));
}

// The folder of each module, in the order of modules.json: "1_Pooling/", or "" for the repository's root folder.
std::vector<std::string> module_prefixes(const std::string& file) {
  const JsonDocument document = JsonDocument::read(file, kMaxModulesBytes);
  const std::vector<Json> modules = document.root().elements();
  if (modules.empty() || modules.size() > kMaxModules)
    throw document.root().error("{} modules: expected 1 to {}", modules.size(), kMaxModules);
  std::vector<std::string> prefixes;
  for (const Json& module : modules) {
    const std::string folder = hf_module_folder(module, true);
    prefixes.push_back(folder.empty() ? "" : folder + "/");
  }
  return prefixes;
}

std::set<std::string> shards_of(const std::string& index) {
  const JsonDocument document = JsonDocument::read(index, kMaxIndexBytes);
  std::set<std::string> names;
  for (const auto& [tensor, shard] : document.root().at("weight_map").members()) {
    const std::string_view name = shard.string();
    if (!is_hub_path(name) || name.find('/') != name.npos || !name.ends_with(".safetensors"))
      throw shard.error("'{}' is not the plain name of a .safetensors file", printable(name, 128));
    names.emplace(name);
  }
  return names;
}

// Collects the files that the repository has, each once.
class Files {
 public:
  explicit Files(const std::vector<std::string>& paths) : paths_(paths) {}
  template <class Names>
  void add_present(const std::string& prefix, const Names& names) {
    for (const auto& name : names)
      if (const std::string path = prefix + std::string(name); contains(paths_, path)) add(path);
  }
  void add(const std::string& path) {
    if (std::find(files_.begin(), files_.end(), path) == files_.end()) files_.push_back(path);
  }
  std::vector<std::string> take() { return std::move(files_); }

 private:
  const std::vector<std::string>& paths_;
  std::vector<std::string> files_;
};

}  // namespace

bool has_weights(const std::vector<std::string>& paths) {
  if (has_model(paths, "")) return true;
  if (!contains(paths, kModules)) return false;
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
    const size_t slash = path.find('/');
    return slash != path.npos && path.substr(slash + 1) == kConfig && has_model(paths, path.substr(0, slash + 1));
  });
}

std::vector<std::string> directory_files(const std::string& repo, const std::vector<std::string>& paths,
                                         const std::function<std::string(const std::string&)>& at_hand) {
  std::vector<std::string> prefixes = {""};
  if (contains(paths, kModules)) prefixes = module_prefixes(at_hand(kModules));
  const std::string& model = prefixes.front();
  if (!has_model(paths, model))
    throw Error("{}: the folder of the model, '{}', has no config.json with model.safetensors", printable(repo),
                printable(model.empty() ? "." : model));
  Files files(paths);
  files.add_present("", kWholeFiles);
  files.add_present(model, kModelFiles);
  files.add_present(model, kHfTextOptionFiles);
  for (size_t i = 1; i < prefixes.size(); ++i)
    if (!prefixes[i].empty()) files.add_present(prefixes[i], kModuleFiles);
  if (!has_safetensors(paths, model)) {
    files.add(model + kCt2Weights);
    return files.take();
  }
  const bool has_index = !contains(paths, model + kOneFile);
  files.add(model + (has_index ? kIndex : kOneFile));
  if (has_index)
    for (const std::string& shard : shards_of(at_hand(model + kIndex))) files.add(model + shard);
  return files.take();
}

}  // namespace ingot
