#include "io/hub/list.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "io/hub/cache.h"
#include "io/hub/choice.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

// A file of a snapshot and the blob that the file links to.
struct Link {
  std::string path;  // in the snapshot
  std::string blob;  // full path, after one link; empty if not a link to a blob
  uint64_t n_bytes = 0;
  int64_t last_used = 0;
};

struct Snapshot {
  std::string commit;
  std::vector<std::string> revisions;
  std::vector<Link> links;

  std::vector<std::string> paths() const {
    std::vector<std::string> paths;
    for (const Link& link : links) paths.push_back(link.path);
    return paths;
  }
};

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    entries.push_back(it->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Maps each commit to the refs that name it.
std::map<std::string, std::vector<std::string>> read_refs(const HubCache& cache) {
  std::map<std::string, std::vector<std::string>> refs;
  const fs::path home = fs::path(cache.folder()) / "refs";
  std::error_code error;
  for (fs::recursive_directory_iterator it(home, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().lexically_relative(home).generic_string();
    try {
      if (const auto commit = cache.commit_of(name); commit && !is_commit(name)) refs[*commit].push_back(name);
    } catch (const Error&) {  // skip a damaged ref
    }
  }
  for (auto& [commit, names] : refs) std::sort(names.begin(), names.end());
  return refs;
}

Link read_link(const HubCache& cache, const fs::path& snapshot, const std::string& path) {
  Link link{.path = path};
  if (const auto status = status_of((snapshot / path).string())) {
    link.n_bytes = status->n_bytes;
    link.last_used = status->accessed_s;
  }
  link.blob = linked_file((snapshot / path).string(), cache.folder() + "/blobs");
  return link;
}

std::vector<Snapshot> read_snapshots(const HubCache& cache) {
  std::vector<Snapshot> snapshots;
  auto refs = read_refs(cache);
  for (const fs::path& folder : entries_of(fs::path(cache.folder()) / "snapshots")) {
    Snapshot snapshot{.commit = folder.filename().string()};
    if (!is_commit(snapshot.commit)) continue;
    snapshot.revisions = refs[snapshot.commit];
    for (const std::string& path : cache.paths(snapshot.commit))
      snapshot.links.push_back(read_link(cache, folder, path));
    snapshots.push_back(std::move(snapshot));
  }
  return snapshots;
}

HubEntry entry_of(const HubCache& cache, const std::string& repo, const Snapshot& snapshot, const std::string& label,
                  const std::vector<std::string>& paths, const char* open) {
  HubEntry entry{.repo = repo, .commit = snapshot.commit, .revisions = snapshot.revisions, .label = label};
  if (open != nullptr) entry.path = cache.snapshot(snapshot.commit) + (*open == 0 ? "" : "/") + open;
  for (const Link& link : snapshot.links) {
    if (!std::binary_search(paths.begin(), paths.end(), link.path)) continue;
    entry.n_bytes += link.n_bytes;
    entry.last_used = std::max(entry.last_used, link.last_used);
  }
  return entry;
}

// Each GGUF model is an entry. All other files (a safetensors model or other data) form one entry.
void add_entries(const HubCache& cache, const std::string& repo, const Snapshot& snapshot,
                 std::vector<HubEntry>& entries) {
  std::vector<std::string> others = snapshot.paths();
  const std::vector<HubGguf> models = gguf_models(others);
  for (const HubGguf& model : models) {
    entries.push_back(entry_of(cache, repo, snapshot, model.label, model.files, model.files[0].c_str()));
    std::erase_if(others, [&](const std::string& path) {
      return std::binary_search(model.files.begin(), model.files.end(), path);
    });
  }
  const bool weights =
      std::any_of(others.begin(), others.end(), [](const std::string& path) { return path.ends_with(".safetensors"); });
  if (weights) {
    entries.push_back(entry_of(cache, repo, snapshot, "safetensors", others, ""));
  } else if (!others.empty()) {
    entries.push_back(entry_of(cache, repo, snapshot, "-", others, nullptr));
  }
}

void add_partial(const HubCache& cache, const std::string& repo, std::vector<HubEntry>& entries) {
  HubEntry entry{.repo = repo, .label = "partial"};
  for (const fs::path& path : entries_of(fs::path(cache.folder()) / "blobs")) {
    const auto status = status_of(path.string());
    if (path.extension() != ".incomplete" || !status) continue;
    entry.n_bytes += status->n_bytes;
    entry.last_used = std::max(entry.last_used, status->modified_ns / 1'000'000'000);
  }
  if (entry.last_used > 0) entries.push_back(entry);
}

// "models--org--repo" -> "org/repo"; empty for other folders.
std::string repo_of(const std::string& folder) {
  constexpr std::string_view kModels = "models--";
  if (!folder.starts_with(kModels)) return "";
  std::string repo = folder.substr(kModels.size());
  if (const size_t dashes = repo.find("--"); dashes != repo.npos) repo.replace(dashes, 2, "/");
  return repo;
}

HubRemoval whole_repository(const HubCache& cache) {
  HubRemoval removal{.folders = {cache.folder(), cache.lock_folder()}};
  for (const fs::path& path : entries_of(fs::path(cache.folder()) / "blobs"))
    if (const auto status = status_of_entry(path.string()); status && status->is_regular)
      removal.freed_bytes += status->n_bytes;
  return removal;
}

// The files of the snapshot that belong to the tag's model; all files without a tag; empty if there is no such model.
std::vector<std::string> tagged(const Snapshot& snapshot, const std::string& tag) {
  std::vector<std::string> paths = snapshot.paths();
  if (tag.empty()) return paths;
  const std::string wanted = to_upper(tag);
  for (const HubGguf& model : gguf_models(paths))
    if (to_upper(model.label) == wanted) return model.files;
  if (wanted != "SAFETENSORS") return {};
  std::erase_if(paths, [](const std::string& path) { return path.ends_with(".gguf"); });
  return paths;
}

void refuse_while_downloading(const HubCache& cache, const std::string& repo) {
  for (const fs::path& path : entries_of(cache.lock_folder()))
    if (HubLock::is_held(path.string()))
      throw Error("{} is being downloaded by another process: wait for it, or stop it first", repo);
}

}  // namespace

std::vector<HubEntry> list_cache(const std::string& root) {
  std::vector<HubEntry> entries;
  for (const fs::path& folder : entries_of(root)) {
    const std::string repo = repo_of(folder.filename().string());
    if (!parse_hub_name(repo)) continue;
    const HubCache cache(root, repo);
    for (const Snapshot& snapshot : read_snapshots(cache)) add_entries(cache, repo, snapshot, entries);
    add_partial(cache, repo, entries);
  }
  return entries;
}

HubRemoval plan_removal(const std::string& root, const HubName& name, const std::string& revision) {
  const HubCache cache(root, name.repo);
  std::error_code error;
  if (!fs::is_directory(cache.folder(), error))
    throw Error("{} is not in '{}': `ingot ls` lists the downloaded models", name.repo, printable(root));
  refuse_while_downloading(cache, name.repo);
  if (name.tag.empty() && revision.empty()) return whole_repository(cache);

  HubRemoval removal;
  std::map<std::string, uint64_t> doomed;  // blobs to remove
  std::set<std::string> needed;
  size_t n_left = 0;
  for (const Snapshot& snapshot : read_snapshots(cache)) {
    const bool named = revision.empty() || cache.commit_of(revision) == snapshot.commit;
    const std::vector<std::string> paths = named ? tagged(snapshot, name.tag) : std::vector<std::string>();
    for (const Link& link : snapshot.links) {
      if (!std::binary_search(paths.begin(), paths.end(), link.path)) {
        needed.insert(link.blob);
        continue;
      }
      removal.files.push_back(cache.snapshot(snapshot.commit) + "/" + link.path);
      if (link.blob.empty()) continue;
      doomed[link.blob] = link.n_bytes;
    }
    if (paths.size() < snapshot.links.size() || !named) {
      ++n_left;
      continue;
    }
    removal.folders.push_back(cache.snapshot(snapshot.commit));
    for (const std::string& ref : snapshot.revisions) removal.files.push_back(cache.folder() + "/refs/" + ref);
  }
  if (removal.files.empty())
    throw Error(
        "{} has no {} in '{}': `ingot ls` lists the downloaded models", name.repo,
        name.tag.empty() ? fmt::format("revision '{}'", printable(revision)) : fmt::format("'{}'", printable(name.tag)),
        printable(root));
  if (n_left == 0) return whole_repository(cache);
  for (const auto& [blob, n_bytes] : doomed) {
    if (needed.contains(blob)) continue;
    removal.files.push_back(blob);
    removal.freed_bytes += n_bytes;
  }
  return removal;
}

void remove(const HubRemoval& removal) {
  auto check = [](const std::string& path, const std::error_code& error) {
    if (error) throw Error("cannot remove '{}': {}", printable(path), error.message());
  };
  for (const std::string& path : removal.files) {
    std::error_code error;
    fs::remove(path, error);
    check(path, error);
  }
  for (const std::string& path : removal.folders) {
    std::error_code error;
    fs::remove_all(path, error);
    check(path, error);
  }
}

}  // namespace ingot
