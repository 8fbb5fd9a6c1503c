// A Hugging Face model directory: config.json, and beside it files of fixed names. Only those names are ever opened:
// what the files say about other files (auto_map, vocab_file, pickled weights) is not followed, but for the folders
// that modules.json of sentence-transformers names. The model itself may lie in one of these (0_Transformer): then that
// is the directory, and the other its whole. Used by hf_config, hf_tokenizer and model/checkpoint.
#pragma once
#include <optional>
#include <string>

#include "io/json.h"

namespace ingot {

// The folder of a module of modules.json, which must not lead elsewhere. Throws Error.
std::string hf_module_folder(const Json& module, bool may_be_empty = false);

class HfDirectory {
 public:
  // Throws Error for a modules.json that is broken.
  explicit HfDirectory(std::string path);

  // Is this a directory with a config.json, or one of whose modules is such a directory?
  static bool is_one(const std::string& path);

  const std::string& path() const { return path_; }
  // The directory with modules.json: mostly this one.
  HfDirectory whole() const { return HfDirectory(whole_, whole_); }
  std::string name() const;  // the directory's own, or org/repo in the Hugging Face cache
  bool has(const char* file) const;
  std::string file(const char* name) const;
  // The JSON file of that name, which must exist. Throws Error.
  JsonDocument document(const char* name) const;
  // Nothing when it does not exist.
  std::optional<JsonDocument> find_document(const char* name) const;

  // The chat template: chat_template.jinja, else that of chat_template.json, else that of tokenizer_config.json (of
  // several, the one named "default"). Throws Error for files that are there and broken.
  std::optional<std::string> chat_template() const;

 private:
  HfDirectory(std::string path, std::string whole) : path_(std::move(path)), whole_(std::move(whole)) {}

  std::string path_, whole_;
};

}  // namespace ingot
