// A Hugging Face model directory: config.json, and beside it files of fixed names. Only those names are ever opened:
// what the files say about other files (auto_map, vocab_file, pickled weights) is not followed. Used by hf_config,
// hf_tokenizer and model/checkpoint.
#pragma once
#include <optional>
#include <string>

#include "io/json.h"

namespace ingot {

class HfDirectory {
 public:
  explicit HfDirectory(std::string path) : path_(std::move(path)) {}

  // Is this a directory with a config.json?
  static bool is_one(const std::string& path);

  const std::string& path() const { return path_; }
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
  std::string path_;
};

}  // namespace ingot
