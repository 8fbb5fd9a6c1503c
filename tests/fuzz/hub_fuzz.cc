// Any bytes as an answer of a Hub. The first byte chooses the kind of answer, and the rest is the answer. An answer is
// refused by Error, or read with the promises kept on which the cache relies: paths and hashes can be appended to a
// folder, and the chosen files are among the listed files.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "io/hub/api.h"
#include "io/hub/choice.h"
#include "io/hub/directory_files.h"
#include "io/hub/name.h"
#include "io/walk.h"

namespace ingot {
namespace {

void check_printable(std::string_view text) {
  for (char c : text) ensure(static_cast<unsigned char>(c) >= 0x20, "messages are printable");
}

void fuzz_tree(std::string_view text) {
  std::vector<HubFile> files;
  parse_tree(text, "tree", files);
  std::vector<std::string> paths;
  for (const HubFile& file : files) {
    ensure(is_hub_path(file.path) && file.path.find("..") != 0 && file.path[0] != '/', "paths stay inside");
    ensure(is_hex(file.hash, 40) || is_hex(file.hash, 64), "hashes are names");
    paths.push_back(file.path);
  }
  std::sort(paths.begin(), paths.end());
  const HubChoice choice = choose_files("org/repo", paths, "", "");
  ensure(choice.is_directory() == choice.files.empty(), "something is chosen");
  for (const std::string& path : choice.files)
    ensure(std::binary_search(paths.begin(), paths.end(), path), "what is chosen was listed");
}

// modules.json of a repository with models in the folders "" and "m".
void fuzz_modules(std::string_view text) {
  const std::vector<std::string> paths = {"1_Pooling/config.json", "config.json",       "m/config.json",
                                          "m/model.safetensors",   "model.safetensors", "modules.json"};
  const std::string file =
      (std::filesystem::temp_directory_path() / fmt::format("ingot_hub_fuzz_{}", ::getpid())).string();
  write_file(file, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  for (const std::string& path : directory_files("org/repo", paths, [&](const std::string&) { return file; }))
    ensure(std::binary_search(paths.begin(), paths.end(), path), "what is fetched was listed");
}

// Lines of "name: value". The first byte also chooses the status.
void fuzz_headers(std::string_view text) {
  HubResponse response{.status = text.empty() ? 404 : 400 + static_cast<unsigned char>(text[0]) % 200};
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (const size_t colon = line.find(':'); colon != line.npos)
      response.headers[std::string(line.substr(0, colon))] = line.substr(colon + 1);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  if (const auto next = next_page(response.header("link")))
    ensure(!next->starts_with("<"), "an address has no brackets");
  parse_content_range(response.header("content-range"));
  check_printable(hub_refusal({.repo = "org/repo", .revision = "main", .endpoint = "https://h"}, response).what());
  check_file_headers(response, {.path = "m.gguf", .n_bytes = 10, .hash = std::string(64, 'a')}, std::string(40, 'b'));
}

// One path per line. The first path is also the quant tag.
void fuzz_choice(std::string_view text) {
  std::vector<std::string> paths;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    paths.emplace_back(line);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  if (paths.empty()) return;
  const std::string tag = paths[0];
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : choose_files("org/repo", paths, tag, "").files)
    ensure(std::binary_search(paths.begin(), paths.end(), path), "what is chosen was listed");
}

}  // namespace
}  // namespace ingot

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0]) {
      case 'r': ensure(is_commit(parse_revision(text, "revision")), "a commit is one"); break;
      case 't': fuzz_tree(text); break;
      case 'h': fuzz_headers(text); break;
      case 'c': fuzz_choice(text); break;
      case 'm': fuzz_modules(text); break;
      case 'n':
        if (const auto name = parse_hub_name(text))
          ensure(std::count(name->repo.begin(), name->repo.end(), '/') == 1, "one slash");
        break;
      default: break;
    }
  } catch (const Error& error) {
    check_printable(error.what());
  }
  return 0;
}
