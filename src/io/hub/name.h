// Names that the Hugging Face Hub uses: repositories, revisions, commits, files. They come from the command line or
// from a listing that may be hostile, and become parts of paths and addresses, so each kind is checked here and nowhere
// else.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

struct HubName {
  std::string repo;  // "org/repo"
  std::string tag;   // what follows the colon: "Q4_K_M"; empty when there is none
  bool explicit_hub = false;  // written as hf://org/repo or hf.co/org/repo: cannot be meant as a path
};

// ORG/REPO[:TAG], with hf://, hf.co/ or https://huggingface.co/ before it or not. Nothing when the text is no such
// name: the Hub's own rules (letters, digits and -_. in each half, no "--" or "..").
std::optional<HubName> parse_hub_name(std::string_view text);
bool has_hub_prefix(std::string_view text);

// A file's path inside a repository that can be joined to a folder: relative, no part of it empty, "." or "..", no
// backslash, colon or control byte.
bool is_hub_path(std::string_view path);

// Branch, tag, commit or refs/pr/N: also a path, as refs/REVISION in the cache.
bool is_hub_revision(std::string_view revision);

bool is_hex(std::string_view text, size_t n_digits);  // lower case
inline bool is_commit(std::string_view text) { return is_hex(text, 40); }

std::string to_upper(std::string_view text);  // ASCII

}  // namespace ingot
