#include "io/hub/hub.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/log.h"
#include "base/system.h"
#include "io/hub/choice.h"
#include "io/hub/directory_files.h"
#include "io/hub/download.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxPages = 1000;

// The steps of pull_model and their shared state.
class Pull {
 public:
  Pull(const HubName& name, const HubOptions& options, const HubEvents& events)
      : repo_(name.repo),
        options_(options),
        events_(events),
        http_({.endpoint = options.endpoint,
               .token = options.token,
               .certificates = options.certificates,
               .timeout_s = options.timeout_s,
               .stopped = events.stopped,
               .pausing = events.pausing}),
        cache_(options.cache, name.repo) {}

  std::string commit() {
    if (is_commit(options_.revision)) return options_.revision;
    const std::string url =
        fmt::format("{}/api/models/{}/revision/{}", http_.options().endpoint, repo_, url_encode(options_.revision, ""));
    return parse_revision(ask(url).body, url);
  }

  std::vector<HubFile> list(const std::string& commit) {
    std::vector<HubFile> files;
    std::optional<std::string> url =
        fmt::format("{}/api/models/{}/tree/{}?recursive=true", http_.options().endpoint, repo_, commit);
    for (size_t page = 0; url; ++page) {
      if (page == kMaxPages) throw Error("{}: the list of files has more than {} pages", repo_, kMaxPages);
      const HubResponse response = ask(*url);
      parse_tree(response.body, *url, files);
      url = next_page(response.header("link"));
    }
    std::sort(files.begin(), files.end(), [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
    return files;
  }

  // Downloads the missing files in this order. Computes the total and checks the disk space before the first download.
  void download(const std::string& commit, const std::vector<HubFile>& files) {
    std::vector<HubFile> missing;
    std::set<std::string> hashes;  // two files may share one blob
    for (const HubFile& file : files) {
      cache_.remove_leftover(file);
      if (!cache_.has(commit, file)) missing.push_back(file);
    }
    if (missing.empty()) return;
    cache_.prepare(commit);
    uint64_t total = 0, kept = 0;
    for (const HubFile& file : missing) {
      if (cache_.has_blob(file) || !hashes.insert(file.hash).second) continue;
      std::error_code error;
      const uint64_t there = fs::file_size(cache_.incomplete(file.hash), error);
      total += file.n_bytes;
      kept += error ? 0 : std::min(there, file.n_bytes);
    }
    check_room(total - kept);
    uint64_t done = 0;
    for (const HubFile& file : missing) {
      if (!cache_.has_blob(file)) {
        fetch(commit, file, [&](uint64_t n) { report(done + n, total, kept); });
        done += file.n_bytes;
        downloaded_ += file.n_bytes;
      }
      cache_.link(commit, file);
    }
    report(total, total, kept);
  }

  const HubCache& cache() const { return cache_; }
  uint64_t downloaded() const { return downloaded_; }

 private:
  HubRequest about(const std::string& file) const {
    return {.repo = repo_,
            .revision = options_.revision,
            .endpoint = http_.options().endpoint,
            .file = file,
            .has_token = !options_.token.empty()};
  }

  HubResponse ask(const std::string& url) {
    HubResponse response = http_.get(url, kMaxHubJsonBytes);
    if (is_transient(response.status)) throw HubCut("{}", hub_refusal(about(""), response).what());
    if (response.status != 200) throw hub_refusal(about(""), response);
    return response;
  }

  void check_room(uint64_t needed) const {
    std::error_code error;
    const uint64_t free = std::filesystem::space(cache_.folder(), error).available;
    if (error) return;  // a later write will report the error
    if (needed > free)
      throw Error(
          "'{}': not enough disk space: {} to download, {} free: free some (`ingot ls`, `ingot rm`), or keep models "
          "elsewhere (--hf-cache)",
          printable(cache_.root()), human_bytes(needed), human_bytes(free));
  }

  void fetch(const std::string& commit, const HubFile& file, const std::function<void(uint64_t)>& progress) {
    const std::string url =
        fmt::format("{}/{}/resolve/{}/{}", http_.options().endpoint, repo_, commit, url_encode(file.path, "/"));
    bool told = false;
    download_blob(http_, cache_, {.request = about(file.path), .url = url, .commit = commit, .file = file},
                  {.progress = progress, .waiting = [&] {
                     if (!told && events_.waiting) events_.waiting(file.path);
                     told = true;
                   }});
  }

  void report(uint64_t done, uint64_t total, uint64_t kept) const {
    if (events_.progress) events_.progress(done, total, kept);
  }

  const std::string repo_;
  const HubOptions& options_;
  const HubEvents& events_;
  HubHttp http_;
  HubCache cache_;
  uint64_t downloaded_ = 0;
};

std::vector<std::string> paths_of(const std::vector<HubFile>& files) {
  std::vector<std::string> paths;
  for (const HubFile& file : files) paths.push_back(file.path);
  return paths;
}

std::vector<HubFile> pick(const std::string& repo, const std::vector<HubFile>& files,
                          const std::vector<std::string>& paths) {
  std::vector<HubFile> picked;
  for (const std::string& path : paths) {
    const auto found = std::lower_bound(files.begin(), files.end(), path,
                                        [](const HubFile& file, const std::string& p) { return file.path < p; });
    if (found == files.end() || found->path != path)
      throw Error("{}: its index names '{}', which is not in the repository", repo, printable(path));
    picked.push_back(*found);
  }
  return picked;
}

std::string path_to_open(const HubCache& cache, const std::string& commit, const HubChoice& choice) {
  return cache.snapshot(commit) + (choice.open.empty() ? "" : "/" + choice.open);
}

// Called last, so offline a revision means its newest complete commit. Only warns if the cache cannot be written.
void write_ref(const HubCache& cache, const std::string& revision, const std::string& commit) {
  try {
    cache.write_ref(revision, commit);
  } catch (const Error& error) {
    log_warn("{}", error.what());
  }
}

HubChoice choose_cached(const HubName& name, const std::vector<std::string>& paths, const std::string& file) {
  try {
    return choose_files(name.repo + " in the cache", paths, name.tag, file);
  } catch (const Error& error) {
    throw Error("{}: run `ingot pull {}` while online to get more files", error.what(), name.repo);
  }
}

void check_revision(const HubOptions& options) {
  if (!is_hub_revision(options.revision))
    throw Error("'{}' is not a revision: give a branch, a tag or a commit", printable(options.revision));
}

}  // namespace

HubModel pull_model(const HubName& name, const HubOptions& options, const HubEvents& events) {
  check_revision(options);
  Pull pull(name, options, events);
  const std::string commit = pull.commit();
  const std::vector<HubFile> listing = pull.list(commit);
  const std::vector<std::string> paths = paths_of(listing);
  const HubChoice choice = choose_files(name.repo, paths, name.tag, options.file);
  auto at_hand = [&](const std::string& path) {
    pull.download(commit, pick(name.repo, listing, {path}));
    return pull.cache().snapshot(commit) + "/" + path;
  };
  const std::vector<std::string> files =
      choice.is_directory() ? directory_files(name.repo, paths, at_hand) : choice.files;
  HubModel model{.repo = name.repo, .commit = commit, .label = choice.label, .files = pick(name.repo, listing, files)};
  pull.download(commit, model.files);
  write_ref(pull.cache(), options.revision, commit);
  model.path = path_to_open(pull.cache(), commit, choice);
  model.downloaded_bytes = pull.downloaded();
  return model;
}

HubModel cached_model(const HubName& name, const HubOptions& options) {
  check_revision(options);
  const HubCache cache(options.cache, name.repo);
  const std::optional<std::string> commit = cache.commit_of(options.revision);
  const std::vector<std::string> paths = commit ? cache.paths(*commit) : std::vector<std::string>();
  if (paths.empty())
    throw Error("{} (revision '{}') is not in '{}': run `ingot pull {}` while online", name.repo,
                printable(options.revision), printable(options.cache), name.repo);
  const HubChoice choice = choose_cached(name, paths, options.file);
  auto at_hand = [&](const std::string& path) { return cache.snapshot(*commit) + "/" + path; };
  const std::vector<std::string> files =
      choice.is_directory() ? directory_files(name.repo, paths, at_hand) : choice.files;
  HubModel model{
      .repo = name.repo, .commit = *commit, .label = choice.label, .path = path_to_open(cache, *commit, choice)};
  for (const std::string& path : files) {
    if (!std::binary_search(paths.begin(), paths.end(), path))
      throw Error("{}: '{}' is not in the cache: run `ingot pull {}` while online", name.repo, printable(path),
                  name.repo);
    std::error_code error;
    const uint64_t n_bytes = fs::file_size(cache.snapshot(*commit) + "/" + path, error);
    model.files.push_back({.path = path, .n_bytes = error ? 0 : n_bytes});
  }
  return model;
}

HubModel find_model(const HubName& name, const HubOptions& options, const HubEvents& events) {
  if (options.offline) return cached_model(name, options);
  try {
    return pull_model(name, options, events);
  } catch (const HubCut& cut) {
    try {
      HubModel model = cached_model(name, options);
      log_warn("{}; using the cached files of {}", cut.what(), name.repo);
      return model;
    } catch (const Error&) {
      throw Error("{}, and the cache does not have {}: check the network, or HF_ENDPOINT", cut.what(), name.repo);
    }
  }
}

}  // namespace ingot
