// CacheFolder: a cache on disk for data that is slow to compute. The key of an entry is a text that names everything
// the data depends on. The files are not trusted: a file that is truncated, changed or stored for another key counts as
// absent. The program also works without the folder: if the folder cannot be written, each run computes the data again.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// $XDG_CACHE_HOME/ingot or ~/.cache/ingot; "" when neither variable is set.
std::string cache_home();

class CacheFolder {
 public:
  // The first store() creates the folder. With the path "", nothing is stored. When the folder holds `most_files`,
  // store() removes the least recently used files.
  explicit CacheFolder(std::string path, size_t most_files = 1000) : path_(std::move(path)), most_files_(most_files) {}

  std::optional<std::vector<char>> find(std::string_view made_of) const;
  // The file appears whole or not at all. Throws Error when the file system refuses.
  void store(std::string_view made_of, std::span<const char> bytes) const;

  std::string file_of(std::string_view made_of) const;  // the path of the entry's file

 private:
  void drop_oldest() const;

  std::string path_;
  size_t most_files_;
};

}  // namespace ingot
