#include "io/huggingface/pooling.h"

namespace ingot {
namespace {

struct Mode {
  const char* name;
  const char* key;  // a bool in the files of sentence-transformers before its version 5; later ones say pooling_mode
};
constexpr Mode kModes[] = {
    {"cls", "pooling_mode_cls_token"},
    {"mean", "pooling_mode_mean_tokens"},
    {"max", "pooling_mode_max_tokens"},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"},
    {"weightedmean", "pooling_mode_weightedmean_tokens"},
    {"lasttoken", "pooling_mode_lasttoken"},
};

std::string names() {
  std::string list;
  for (const Mode& mode : kModes) list += (list.empty() ? "" : ", ") + std::string(mode.name);
  return list;
}

}  // namespace

std::optional<std::string> read_hf_pooling(const HfDirectory& directory) {
  const auto document = directory.find_document("1_Pooling/config.json");
  if (!document) return std::nullopt;
  const Json root = document->root();
  const auto named = root.find("pooling_mode");
  std::optional<std::string> found;
  for (const Mode& mode : kModes) {
    const auto flag = root.find(mode.key);
    const bool chosen = named ? named->string() == mode.name : flag && flag->boolean();
    if (chosen && found) throw flag->error("pooling by both {} and {} is not supported: choose one", *found, mode.name);
    if (chosen) found = mode.name;
  }
  if (!found && named)
    throw named->error("pooling '{}' is not known: expected one of {}", printable(named->string(), 64), names());
  if (!found) throw root.error("no pooling mode is chosen: expected one of {}", names());
  return found;
}

}  // namespace ingot
