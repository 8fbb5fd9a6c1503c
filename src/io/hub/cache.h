// The Hugging Face cache of one repository, in the layout that huggingface_hub and llama.cpp also use:
//   ROOT/models--ORG--REPO/blobs/HASH                  the bytes, named by their hash; HASH.incomplete until complete
//                         /snapshots/COMMIT/PATH       a relative link to ../../blobs/HASH; on Windows a hard link
//                         /refs/REVISION               40 digits: the last known commit of a branch or tag
//   ROOT/.locks/models--ORG--REPO/HASH.lock            locked by the process that writes the blob
// All functions throw Error if the file system refuses.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/system_file.h"
#include "io/hub/api.h"

namespace ingot {

class HubCache {
 public:
  HubCache(std::string root, const std::string& repo);

  const std::string& root() const { return root_; }
  const std::string& folder() const { return folder_; }
  std::string blob(const std::string& hash) const { return folder_ + "/blobs/" + hash; }
  std::string incomplete(const std::string& hash) const { return blob(hash) + ".incomplete"; }
  std::string snapshot(const std::string& commit) const { return folder_ + "/snapshots/" + commit; }
  std::string lock_folder() const;
  std::string lock(const std::string& hash) const { return lock_folder() + "/" + hash + ".lock"; }

  // Creates the folders for a download, and the marker file that makes backup programs skip the cache.
  void prepare(const std::string& commit) const;

  // The commit of a revision, if the cache has a ref for the revision. For a commit, returns the commit.
  std::optional<std::string> commit_of(const std::string& revision) const;
  void write_ref(const std::string& revision, const std::string& commit) const;

  bool has_blob(const HubFile& file) const;                         // the blob has the file's size
  bool has(const std::string& commit, const HubFile& file) const;  // the snapshot has the file, with the right size
  void link(const std::string& commit, const HubFile& file) const;

  // Removes HASH.incomplete if the blob is complete and no process is downloading the blob.
  void remove_leftover(const HubFile& file) const;

  // The paths of a snapshot's files whose links are valid, sorted; empty if there is no such snapshot.
  std::vector<std::string> paths(const std::string& commit) const;

 private:
  const std::string root_, name_, folder_;
};

// "models--org--repo"
std::string hub_folder_name(const std::string& repo);

// Creates the folder and its parents. Throws Error.
void make_folder(const std::string& path);

// A file lock, held while the object lives. The constructor waits while another process holds the lock and calls
// `waiting` repeatedly; `waiting` may throw.
class HubLock {
 public:
  HubLock(const std::string& path, const std::function<void()>& waiting);
  HubLock(const HubLock&) = delete;
  HubLock& operator=(const HubLock&) = delete;

  static bool is_held(const std::string& path);  // true if another holder has the lock

 private:
  FileHandle file_;
};

}  // namespace ingot
