// CacheFolder: bytes that took a while to make, kept in files for the next run. Each is found by a text that says all
// that went into it. Nothing in the folder is trusted: a file that is cut, changed or of something else counts as none;
// and nothing is needed: where it cannot be written, things are made anew.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// $XDG_CACHE_HOME/ingot or ~/.cache/ingot; "": there is no home.
std::string cache_home();

class CacheFolder {
 public:
  // It is made when something is stored. "": keeps nothing. The files used longest ago give way to new ones over
  // `most_files`.
  explicit CacheFolder(std::string path, size_t most_files = 1000) : path_(std::move(path)), most_files_(most_files) {}

  std::optional<std::vector<char>> find(std::string_view made_of) const;
  // Appears whole or not at all. Throws Error where the file system refuses.
  void store(std::string_view made_of, std::span<const char> bytes) const;

  std::string file_of(std::string_view made_of) const;  // its path

 private:
  void drop_oldest() const;

  std::string path_;
  size_t most_files_;
};

}  // namespace ingot
