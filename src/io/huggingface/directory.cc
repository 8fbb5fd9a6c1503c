#include "io/huggingface/directory.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTemplateBytes = 1 << 20;

// The limits are about ten times the largest published files.
size_t max_bytes(std::string_view name) { return name == "tokenizer.json" ? 256'000'000 : 64'000'000; }

std::optional<std::string> template_of(const JsonDocument& document) {
  const auto value = document.root().find("chat_template");
  if (!value) return std::nullopt;
  if (value->is_string()) return std::string(value->string());
  for (const Json& entry : value->elements())
    if (entry.at("name").string() == "default") return std::string(entry.at("template").string());
  throw value->error("has no template named 'default'");
}

}  // namespace

std::string hf_module_folder(const Json& module, bool may_be_empty) {
  const std::string_view name = module.at("path").string();
  if ((name.empty() && !may_be_empty) || name.find_first_of("/\\") != name.npos || name.starts_with("."))
    throw module.at("path").error("'{}' is not the name of a folder of the model", printable(name, 64));
  return std::string(name);
}

HfDirectory::HfDirectory(std::string path) : path_(path), whole_(std::move(path)) {
  const auto modules = find_document("modules.json");
  if (!modules) return;
  const std::vector<Json> all = modules->root().elements();
  if (all.empty() || !all.front().is_object()) throw modules->root().error("expected modules");
  const std::string folder = hf_module_folder(all.front(), true);
  if (!folder.empty()) path_ = file(folder.c_str());
}

bool HfDirectory::is_one(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return false;
  if (fs::exists(fs::path(path) / "config.json", error)) return true;
  return fs::exists(fs::path(path) / "modules.json", error) && HfDirectory(path).has("config.json");
}

std::string HfDirectory::name() const {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(whole_, error);
  if (error) return whole_;
  if (real.parent_path().filename() != "snapshots") return real.filename().string();
  // models--ORG--REPO/snapshots/REVISION
  std::string name = real.parent_path().parent_path().filename().string();
  if (name.starts_with("models--")) name.erase(0, 8);
  if (const size_t dashes = name.find("--"); dashes != name.npos) name.replace(dashes, 2, "/");
  return name;
}

std::string HfDirectory::file(const char* name) const { return (fs::path(path_) / name).string(); }

bool HfDirectory::has(const char* name) const {
  std::error_code error;
  return fs::exists(file(name), error);
}

JsonDocument HfDirectory::document(const char* name) const { return JsonDocument::read(file(name), max_bytes(name)); }

std::optional<JsonDocument> HfDirectory::find_document(const char* name) const {
  if (!has(name)) return std::nullopt;
  return document(name);
}

std::optional<std::string> HfDirectory::chat_template() const {
  if (has("chat_template.jinja")) return read_file(file("chat_template.jinja"), kMaxTemplateBytes);
  for (const char* name : {"chat_template.json", "tokenizer_config.json"})
    if (const auto document = find_document(name))
      if (auto found = template_of(*document)) return found;
  return std::nullopt;
}

}  // namespace ingot
