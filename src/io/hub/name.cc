#include "io/hub/name.h"

#include <algorithm>

namespace ingot {
namespace {

constexpr size_t kMaxNameBytes = 96, kMaxPathBytes = 1024, kMaxRevisionBytes = 256, kMaxPartBytes = 255;
constexpr std::string_view kPrefixes[] = {"hf://", "https://huggingface.co/", "https://hf.co/", "huggingface.co/",
                                          "hf.co/"};

bool is_alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_word(char c) { return is_alnum(c) || c == '_'; }

// True for one half of org/repo.
bool is_half(std::string_view text) {
  if (text.empty() || text.size() > kMaxNameBytes || !is_word(text.front()) || !is_word(text.back())) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return is_word(c) || c == '-' || c == '.'; });
}

bool is_tag(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes && is_alnum(text.front()) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_word(c) || c == '-' || c == '.'; });
}

// Calls f with each part between slashes; returns false as soon as f returns false.
template <class F>
bool each_part(std::string_view path, const F& f) {
  for (;;) {
    const size_t slash = path.find('/');
    if (!f(path.substr(0, slash))) return false;
    if (slash == path.npos) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

bool has_hub_prefix(std::string_view text) {
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return text.starts_with(prefix); });
}

std::optional<HubName> parse_hub_name(std::string_view text) {
  HubName name{.explicit_hub = has_hub_prefix(text)};
  for (std::string_view prefix : kPrefixes)
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  if (const size_t colon = text.find(':'); colon != text.npos) {
    name.tag = text.substr(colon + 1);
    if (!is_tag(name.tag)) return std::nullopt;
    text = text.substr(0, colon);
  }
  const size_t slash = text.find('/');
  if (slash == text.npos || !is_half(text.substr(0, slash)) || !is_half(text.substr(slash + 1))) return std::nullopt;
  if (text.find("--") != text.npos || text.find("..") != text.npos || text.ends_with(".git")) return std::nullopt;
  name.repo = text;
  return name;
}

bool is_hub_path(std::string_view path) {
  if (path.size() > kMaxPathBytes) return false;
  return each_part(path, [](std::string_view part) {
    return !part.empty() && part != "." && part != ".." && part.size() <= kMaxPartBytes &&
           std::none_of(part.begin(), part.end(), [](char c) {
             return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\' || c == ':';
           });
  });
}

bool is_hub_revision(std::string_view revision) {
  return revision.size() <= kMaxRevisionBytes && is_hub_path(revision);
}

bool is_hex(std::string_view text, size_t n_digits) {
  return text.size() == n_digits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string to_upper(std::string_view text) {
  std::string upper(text);
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
  return upper;
}

}  // namespace ingot
