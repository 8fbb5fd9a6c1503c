// The Hugging Face cache of one repository, as huggingface_hub and llama.cpp share it with us:
//   ROOT/models--ORG--REPO/blobs/HASH                  the bytes, named by their hash; HASH.incomplete while they come
//                         /snapshots/COMMIT/PATH       a relative link to ../../blobs/HASH
//                         /refs/REVISION               40 digits: the commit that a branch or tag was last seen at
//   ROOT/.locks/models--ORG--REPO/HASH.lock            flock()ed by whoever writes that blob
// Everything here throws Error where the file system refuses.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

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

  // The folders that a download needs, and the mark that tells backup programs to pass them over.
  void prepare(const std::string& commit) const;

  // The commit of a revision (a commit is its own), if the cache knows it.
  std::optional<std::string> commit_of(const std::string& revision) const;
  void write_ref(const std::string& revision, const std::string& commit) const;

  bool has_blob(const HubFile& file) const;                         // whole, as far as its size tells
  bool has(const std::string& commit, const HubFile& file) const;  // in the snapshot, of that size
  void link(const std::string& commit, const HubFile& file) const;

  // Removes what was left of an earlier download, where the blob has come whole since and nobody is at it.
  void remove_leftover(const HubFile& file) const;

  // The paths of a snapshot's files that lead somewhere, sorted; empty when there is no such snapshot.
  std::vector<std::string> paths(const std::string& commit) const;

 private:
  const std::string root_, name_, folder_;
};

// "models--org--repo"
std::string hub_folder_name(const std::string& repo);

// Creates it and what it lies in. Throws Error.
void make_folder(const std::string& path);

// Held while it lives. Waits as long as another process has it, calling `waiting` now and then; that may throw.
class HubLock {
 public:
  HubLock(const std::string& path, const std::function<void()>& waiting);
  ~HubLock();
  HubLock(const HubLock&) = delete;
  HubLock& operator=(const HubLock&) = delete;

  static bool is_held(const std::string& path);  // by another

 private:
  int fd_ = -1;
};

}  // namespace ingot
