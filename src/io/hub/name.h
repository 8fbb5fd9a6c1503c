// Names on the Hugging Face Hub: repositories, revisions, commits, files. The names come from the command line or from
// an untrusted listing, and become parts of paths and URLs. So every kind of name is checked here and only here.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

struct HubName {
  std::string repo;  // "org/repo"
  std::string tag;   // the part after the colon: "Q4_K_M"; empty without a colon
  bool explicit_hub = false;  // written as hf://org/repo or hf.co/org/repo, so not a path
};

// Parses ORG/REPO[:TAG], optionally after hf://, hf.co/ or https://huggingface.co/. Returns nothing if the text does
// not follow the Hub's rules for names (letters, digits and -_. in each half, no "--" or "..").
std::optional<HubName> parse_hub_name(std::string_view text);
bool has_hub_prefix(std::string_view text);

// True if a file's path inside a repository can be joined to a folder safely: relative, without components that are
// empty, "." or "..", and without backslash, colon or control byte.
bool is_hub_path(std::string_view path);

// True for a branch, tag, commit or refs/pr/N. A revision must also be a valid path, because the cache stores
// refs/REVISION.
bool is_hub_revision(std::string_view revision);

bool is_hex(std::string_view text, size_t n_digits);  // lower-case digits
inline bool is_commit(std::string_view text) { return is_hex(text, 40); }

std::string to_upper(std::string_view text);  // ASCII

}  // namespace ingot
