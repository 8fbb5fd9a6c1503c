#include "cli/options/hub.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "cli/terminal/terminal.h"
#include "io/hub/http.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGroup = "Hugging Face Hub";

// Such a name means a missing file, not a repository.
bool looks_like_file(const std::string& given) { return given.ends_with(".gguf") || given.ends_with(".safetensors"); }

}  // namespace

void add_hub_cache_option(CLI::App& app, HubFlags& f) {
  app.add_option("--hf-cache", f.cache,
                 "folder of downloaded models (default: HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub)")
      ->group(kGroup);
}

void add_hub_options(CLI::App& app, HubFlags& f) {
  app.add_option("--revision", f.revision, "branch, tag or commit of the repository (default: main)")->group(kGroup);
  app.add_option("--hf-file", f.file, "file of the repository to use, instead of a quant tag (also -hff)")
      ->group(kGroup);
  app.add_option(
         "--hf-token", f.token,
         "access token for private and gated repositories (default: HF_TOKEN or the file HF_HOME/token; also -hft)")
      ->group(kGroup);
  app.add_option("--hf-endpoint", f.endpoint,
                 "address of the Hub or a mirror (default: HF_ENDPOINT or https://huggingface.co)")
      ->group(kGroup);
  add_hub_cache_option(app, f);
  app.add_option("--hf-timeout", f.timeout_s,
                 "seconds without a byte before a download is retried (default: HF_HUB_DOWNLOAD_TIMEOUT or 30)")
      ->check(CLI::Range(1, 3600))
      ->group(kGroup);
  app.add_flag("--offline", f.offline, "use only downloaded models, without the network (also set by HF_HUB_OFFLINE)")
      ->group(kGroup);
}

HubOptions hub_options(const HubFlags& f) {
  HubOptions o = hub_options_from_environment();
  if (!f.revision.empty()) o.revision = f.revision;
  if (!f.token.empty()) o.token = f.token;
  if (!f.endpoint.empty()) o.endpoint = f.endpoint;
  if (!f.cache.empty()) o.cache = f.cache;
  if (f.timeout_s > 0) o.timeout_s = f.timeout_s;
  o.file = f.file;
  o.offline |= f.offline;
  if (o.cache.empty())
    throw UsageError("there is no folder for downloaded models: name one with --hf-cache or HF_HOME");
  return o;
}

HubName require_hub_name(const std::string& given) {
  const auto name = parse_hub_name(given);
  if (!name)
    throw UsageError("'{}' is not a repository of the Hugging Face Hub: give ORG/REPO or ORG/REPO:QUANT",
                     printable(given));
  return *name;
}

HubModel with_hub_events(const HubName& name, const std::function<HubModel(const HubEvents&)>& f) {
  ProgressBar bar("pulling " + name.repo);
  InterruptGuard guard;
  const HubEvents events = {
      .progress = [&](uint64_t done, uint64_t total, uint64_t kept) { bar.update(done, total, kept); },
      .waiting =
          [&](const std::string& path) {
            if (stderr_is_terminal())
              tell("ingot: waiting for another process that downloads {}\n", printable(path));
          },
      .pausing =
          [&](const std::string& why, int seconds) {
            bar.wipe();
            tell("ingot: {}: asking again in {} s\n", why, seconds);
          },
      .stopped = [] { return InterruptGuard::interrupted(); }};
  try {
    return f(events);
  } catch (const HubInterrupted& interrupted) {
    bar.wipe();
    tell("ingot: {}\n", interrupted.what());
    throw CLI::RuntimeError(130);
  }
}

std::string resolve_model(const std::string& given, const HubFlags& flags) {
  std::error_code error;
  const bool there = fs::exists(fs::symlink_status(given, error));
  const auto name = there ? std::nullopt : parse_hub_name(given);
  if (!name && has_hub_prefix(given)) require_hub_name(given);
  if (!name || (looks_like_file(given) && !name->explicit_hub)) {
    if (!flags.file.empty() || !flags.revision.empty())
      throw UsageError("--hf-file and --revision need a model of the Hugging Face Hub (ORG/REPO), but '{}' is a path",
                       printable(given));
    return given;
  }
  try {
    return with_hub_events(*name,
                           [&](const HubEvents& events) { return find_model(*name, hub_options(flags), events); })
        .path;
  } catch (const UsageError&) {
    throw;
  } catch (const Error& e) {
    if (name->explicit_hub) throw;
    throw Error("{} ('{}' is not a file or directory here, so ingot asked the Hugging Face Hub for it)", e.what(),
                printable(given));
  }
}

}  // namespace ingot
