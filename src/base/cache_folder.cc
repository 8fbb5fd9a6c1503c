// A file is a Header, then the bytes. Two 64-bit hashes form the file's name and detect accidental damage. The hashes
// do not protect against an attacker, but an attacker would need write access to the user's own folder.
#include "base/cache_folder.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/splitmix.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Hash = std::array<uint64_t, 2>;

struct Header {
  char magic[8];
  Hash made_of, content;
  uint64_t size;
};
constexpr char kMagic[8] = {'i', 'n', 'g', 'o', 't', 'c', '0', '1'};

// FNV-1a with a given basis; splitmix mixes the bits at the end.
uint64_t hash_with(uint64_t h, std::string_view text) {
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return splitmix(h);
}
Hash hash_of(std::string_view text) { return {hash_with(0xCBF29CE484222325u, text), hash_with(kSplitMixStep, text)}; }

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string cache_home() {
  if (const std::string cache = variable("XDG_CACHE_HOME"); cache.starts_with('/')) return cache + "/ingot";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/ingot";
}

std::string CacheFolder::file_of(std::string_view made_of) const {
  const Hash hash = hash_of(made_of);
  return fmt::format("{}/{:016x}{:016x}", path_, hash[0], hash[1]);
}

std::optional<std::vector<char>> CacheFolder::find(std::string_view made_of) const {
  if (path_.empty()) return std::nullopt;
  std::string file;
  const std::string path = file_of(made_of);
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  try {
    file = read_file(path, size_t{64} << 20);
  } catch (const Error&) {
    return std::nullopt;
  }
  Header header;
  if (file.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, file.data(), sizeof header);
  const std::string_view content = std::string_view(file).substr(sizeof header);
  if (!std::equal(kMagic, kMagic + sizeof kMagic, header.magic) || header.size != content.size() ||
      header.made_of != hash_of(made_of) || header.content != hash_of(content))
    return std::nullopt;
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);  // the time of the last use
  return std::vector<char>(content.begin(), content.end());
}

void CacheFolder::store(std::string_view made_of, std::span<const char> bytes) const {
  if (path_.empty()) return;
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) throw Error("{}: the folder cannot be created: {}", printable(path_), error.message());
  drop_oldest();
  const std::string_view content(bytes.data(), bytes.size());
  Header header{{}, hash_of(made_of), hash_of(content), content.size()};
  std::copy_n(kMagic, sizeof kMagic, header.magic);
  FileWriter writer(file_of(made_of));
  writer.write({reinterpret_cast<const uint8_t*>(&header), sizeof header});
  writer.write({reinterpret_cast<const uint8_t*>(content.data()), content.size()});
  writer.commit();
}

// Removes about a tenth of the files at once, so removals are rare.
void CacheFolder::drop_oldest() const {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    const auto time = entry.last_write_time(error);
    if (!error && entry.is_regular_file(error)) files.emplace_back(time, entry.path());
  }
  if (files.size() < most_files_) return;
  const size_t n = files.size() - most_files_ + most_files_ / 10 + 1;
  std::ranges::nth_element(files, files.begin() + static_cast<ptrdiff_t>(std::min(n, files.size()) - 1));
  for (size_t i = 0; i < std::min(n, files.size()); ++i) fs::remove(files[i].second, error);
}

}  // namespace ingot
