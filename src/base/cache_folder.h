// CacheFolder: files that hold bytes which took a while to make, for the next run. The key of an entry is a text that
// names everything the bytes depend on. The folder is not trusted: a file that is cut, changed or made for another key
// counts as absent. The folder is not needed either: where it cannot be written, the bytes are made again.
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
  // The folder is made at the first store(). A path of "" stores nothing. When the folder holds `most_files`, store()
  // removes the files used longest ago.
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
