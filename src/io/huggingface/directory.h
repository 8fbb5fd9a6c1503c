// A Hugging Face model directory: config.json and other files with fixed names. Only files with these names are opened.
// References to other files (auto_map, vocab_file, pickled weights) are not followed, except the folders in
// modules.json of sentence-transformers. If the model is in such a folder (0_Transformer), that folder is the
// directory, and whole() is the folder with modules.json. Used by config, tokenizer and model/checkpoint.
#pragma once
#include <optional>
#include <string>

#include "io/json.h"

namespace ingot {

// The folder of a module in modules.json, which must lie inside the directory. Throws Error.
std::string hf_module_folder(const Json& module, bool may_be_empty = false);

class HfDirectory {
 public:
  // Throws Error if modules.json is invalid.
  explicit HfDirectory(std::string path);

  // True for a directory that has a config.json, or a module with a config.json.
  static bool is_one(const std::string& path);

  const std::string& path() const { return path_; }
  // The directory with modules.json; for most models, this directory.
  HfDirectory whole() const { return HfDirectory(whole_, whole_); }
  std::string name() const;  // the directory's name, or org/repo in the Hugging Face cache
  bool has(const char* file) const;
  std::string file(const char* name) const;
  // Parses the JSON file `name`, which must exist. Throws Error.
  JsonDocument document(const char* name) const;
  // As document(); nothing if the file does not exist.
  std::optional<JsonDocument> find_document(const char* name) const;

  // The chat template from the first of these files that has one: chat_template.jinja, chat_template.json,
  // tokenizer_config.json (of several templates, the one named "default"). Throws Error if a file exists but is
  // invalid.
  std::optional<std::string> chat_template() const;

 private:
  HfDirectory(std::string path, std::string whole) : path_(std::move(path)), whole_(std::move(whole)) {}

  std::string path_, whole_;
};

}  // namespace ingot
