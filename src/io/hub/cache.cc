#include "io/hub/cache.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "io/hub/name.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSnapshotFiles = kMaxHubFiles;
constexpr std::string_view kCacheTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This folder is a cache of files from the Hugging Face Hub; see https://bford.info/cachedir/\n";

[[noreturn]] void throw_errno(const char* doing, const std::string& path, int error) {
  throw Error("cannot {} '{}': {}", doing, printable(path), std::strerror(error));
}

void write_text(const std::string& path, std::string_view text) {
  write_file(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

std::optional<uint64_t> file_size(const std::string& path) {
  std::error_code error;
  const uintmax_t n = fs::is_regular_file(path, error) ? fs::file_size(path, error) : 0;
  return error || !fs::is_regular_file(path, error) ? std::nullopt : std::optional<uint64_t>(n);
}

}  // namespace

std::string hub_folder_name(const std::string& repo) {
  std::string name = "models--" + repo;
  if (const size_t slash = name.find('/'); slash != name.npos) name.replace(slash, 1, "--");
  return name;
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw_errno("create the folder", path, error.value());
}

HubCache::HubCache(std::string root, const std::string& repo)
    : root_(std::move(root)), name_(hub_folder_name(repo)), folder_(root_ + "/" + name_) {}

std::string HubCache::lock_folder() const { return root_ + "/.locks/" + name_; }

void HubCache::prepare(const std::string& commit) const {
  make_folder(folder_ + "/blobs");
  make_folder(snapshot(commit));
  make_folder(lock_folder());
  std::error_code error;
  if (const std::string tag = root_ + "/CACHEDIR.TAG"; !fs::exists(tag, error)) write_text(tag, kCacheTag);
}

std::optional<std::string> HubCache::commit_of(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  if (!is_hub_revision(revision)) return std::nullopt;
  const std::string path = folder_ + "/refs/" + revision;
  if (!file_size(path)) return std::nullopt;
  std::string commit = read_file(path, 256);
  commit.erase(commit.find_last_not_of(" \r\n") + 1);  // npos + 1 is 0
  if (!is_commit(commit))
    throw Error("{}: '{}' is not a commit: remove that file", printable(path), printable(commit, 64));
  return commit;
}

void HubCache::write_ref(const std::string& revision, const std::string& commit) const {
  if (revision == commit || commit_of(revision) == commit) return;
  const fs::path path = fs::path(folder_) / "refs" / revision;
  make_folder(path.parent_path().string());
  write_text(path.string(), commit);
}

bool HubCache::has_blob(const HubFile& file) const { return file_size(blob(file.hash)) == file.n_bytes; }

bool HubCache::has(const std::string& commit, const HubFile& file) const {
  return file_size(snapshot(commit) + "/" + file.path) == file.n_bytes;
}

void HubCache::remove_leftover(const HubFile& file) const {
  if (has_blob(file) && !HubLock::is_held(lock(file.hash))) std::remove(incomplete(file.hash).c_str());
}

void HubCache::link(const std::string& commit, const HubFile& file) const {
  const fs::path path = fs::path(snapshot(commit)) / file.path;
  make_folder(path.parent_path().string());
  std::string target = "../../blobs/" + file.hash;
  for (char c : file.path)
    if (c == '/') target.insert(0, "../");
  if (!link_file(target, path.string())) throw_errno("make the link", path.string(), errno);
}

std::vector<std::string> HubCache::paths(const std::string& commit) const {
  std::vector<std::string> paths;
  const fs::path home = snapshot(commit);
  std::error_code error;
  for (fs::recursive_directory_iterator it(home, error), end; !error && it != end; it.increment(error)) {
    if (!fs::is_regular_file(it->path(), error)) continue;
    if (paths.size() == kMaxSnapshotFiles)
      throw Error("'{}' has more than {} files", printable(home.string()), kMaxSnapshotFiles);
    paths.push_back(it->path().lexically_relative(home).generic_string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The previous holder may have removed the lock's file. This lock would then be on a file that no other process can
// open, so lock again.
HubLock::HubLock(const std::string& path, const std::function<void()>& waiting) {
  make_folder(fs::path(path).parent_path().string());
  for (;;) {
    file_ = open_to_update(path);
    if (!file_) throw_errno("open the lock", path, errno);
    for (;;) {
      const LockResult result = try_lock(file_, false);
      if (result == LockResult::kTaken) break;
      if (result == LockResult::kFailed) throw_errno("take the lock", path, errno);
      if (result == LockResult::kNoLocks) {
        // at worst two writers corrupt one download, which the hash check detects
        log_warn("{}: this file system does not support locks: do not download the same file in two processes",
                 printable(path));
        return;
      }
      waiting();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    if (is_file_at(file_, path)) return;
  }
}

bool HubLock::is_held(const std::string& path) {
  const FileHandle file = open_to_read(path);
  return file && try_lock(file, true) == LockResult::kHeldByOther;
}

}  // namespace ingot
