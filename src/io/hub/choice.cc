#include "io/hub/choice.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "io/gguf/projector.h"
#include "io/hub/directory_files.h"
#include "io/hub/name.h"

namespace ingot {
namespace {

// A label is one of these, optionally with UD- in front and _LETTERS behind (Q4_K_M, UD-Q2_K_XL, MXFP4_MOE).
constexpr std::string_view kTypes[] = {
    "F32",   "F16",     "BF16",   "FP32",  "FP16",  "Q1_0",   "Q2_0",   "Q4_0",  "Q4_1",  "Q5_0",    "Q5_1",   "Q8_0",
    "Q8_1",  "Q2_K",    "Q3_K",   "Q4_K",  "Q5_K",  "Q6_K",   "Q8_K",   "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S",
    "IQ2_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4",   "NVFP4",
};
constexpr std::string_view kDynamic = "UD-";
constexpr std::string_view kPreferred[] = {"Q4_K_M", "Q8_0"};
// GGUF files next to a model that are not models themselves.
constexpr std::string_view kNotModels[] = {"MMPROJ", "IMATRIX", "MTP-", "EAGLE3-", "DFLASH-", "DSPARK-"};

bool is_letter(char c) { return c >= 'A' && c <= 'Z'; }
bool is_alnum(char c) { return is_letter(c) || (c >= '0' && c <= '9'); }

bool contains(const std::vector<std::string>& sorted, std::string_view path) {
  return std::binary_search(sorted.begin(), sorted.end(), path);
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }  // npos + 1 is 0

// The length of the label at the start of `name` (in capitals); 0: no label.
size_t label_length(std::string_view name) {
  const size_t prefix = name.starts_with(kDynamic) ? kDynamic.size() : 0;
  const std::string_view rest = name.substr(prefix);
  size_t best = 0;
  for (std::string_view type : kTypes) {
    if (!rest.starts_with(type)) continue;
    size_t end = type.size();
    if (rest.size() > end + 1 && rest[end] == '_' && is_letter(rest[end + 1]))
      for (++end; end < rest.size() && is_letter(rest[end]);) ++end;
    if (end < rest.size() && is_alnum(rest[end])) continue;
    best = std::max(best, prefix + end);
  }
  return best;
}

std::string last_label(std::string_view name) {
  std::string label;
  for (size_t i = 0; i < name.size();) {
    const size_t length = i == 0 || !is_alnum(name[i - 1]) ? label_length(name.substr(i)) : 0;
    if (length > 0) label = name.substr(i, length);
    i += std::max<size_t>(length, 1);
  }
  return label;
}

struct Split {
  std::string prefix;
  size_t part = 1, n_parts = 1;
};

// "-00002-of-00003.gguf" at the end of a path.
std::optional<Split> split_of(std::string_view path) {
  constexpr std::string_view kOf = "-of-", kEnd = ".gguf";
  constexpr size_t kDigits = 5, kLength = 1 + kDigits + kOf.size() + kDigits + kEnd.size();
  if (path.size() <= kLength || !path.ends_with(kEnd)) return std::nullopt;
  const std::string_view end = path.substr(path.size() - kLength);
  const std::string_view part = end.substr(1, kDigits), count = end.substr(1 + kDigits + kOf.size(), kDigits);
  auto digits = [](std::string_view s) {
    return std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (end[0] != '-' || end.substr(1 + kDigits, kOf.size()) != kOf || !digits(part) || !digits(count))
    return std::nullopt;
  const Split split{.prefix = std::string(path.substr(0, path.size() - kLength)),
                    .part = std::stoul(std::string(part)),
                    .n_parts = std::stoul(std::string(count))};
  if (split.part == 0 || split.part > split.n_parts) return std::nullopt;
  return split;
}

bool is_model(std::string_view path) {
  const std::string name = to_upper(base_name(path));
  if (!path.ends_with(".gguf")) return false;
  return std::none_of(std::begin(kNotModels), std::end(kNotModels),
                      [&](std::string_view word) { return name.find(word) != name.npos; });
}

// True if `name` contains `word` with a dot, dash, slash or nothing on either side. Both in capitals.
bool has_word(std::string_view name, std::string_view word) {
  auto in_word = [](char c) { return is_alnum(c) || c == '_'; };
  for (size_t at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !in_word(name[at - 1])) && (end == name.size() || !in_word(name[end]))) return true;
  }
  return false;
}

const HubGguf* find_tag(const std::vector<HubGguf>& models, const std::string& tag) {
  const std::string wanted = to_upper(tag);
  for (const HubGguf& model : models)
    if (model.label == wanted) return &model;
  for (const HubGguf& model : models)
    if (model.label == std::string(kDynamic) + wanted) return &model;
  for (const HubGguf& model : models)
    if (has_word(to_upper(model.files[0]), wanted)) return &model;
  return nullptr;
}

const HubGguf* preferred(const std::vector<HubGguf>& models) {
  for (std::string_view label : kPreferred)
    for (const HubGguf& model : models)
      if (model.label == label) return &model;
  return models.empty() ? nullptr : &models[0];
}

std::string labels_of(const std::vector<HubGguf>& models) {
  constexpr size_t kMax = 40;
  std::string list;
  for (size_t i = 0; i < std::min(models.size(), kMax); ++i)
    list += (i > 0 ? ", " : "") + printable(models[i].label, 64);
  return list + (models.size() > kMax ? ", ..." : "");
}

HubChoice whole(const std::string& repo, const HubGguf& model, const std::string& projector) {
  if (model.files.size() != model.n_parts)
    throw Error("{}: '{}' is split into {} files, but only {} of them exist", printable(repo),
                printable(model.files[0]), model.n_parts, model.files.size());
  HubChoice choice{.files = model.files, .open = model.files[0], .label = model.label};
  if (!projector.empty()) choice.files.push_back(projector);
  return choice;
}

}  // namespace

std::string quant_label(std::string_view path) {
  const std::string name = to_upper(path);
  for (std::string_view rest = name;;) {
    const std::string label = last_label(base_name(rest));
    const size_t slash = rest.rfind('/');
    if (!label.empty() || slash == rest.npos) return label;
    rest = rest.substr(0, slash);
  }
}

std::vector<HubGguf> gguf_models(const std::vector<std::string>& paths) {
  std::vector<HubGguf> models;
  std::string prefix;  // of the split model being collected; in sorted paths, its parts are adjacent
  for (const std::string& path : paths) {
    if (!is_model(path)) continue;
    const auto split = split_of(path);
    if (split && !models.empty() && split->prefix == prefix && models.back().n_parts == split->n_parts) {
      models.back().files.push_back(path);
      continue;
    }
    prefix = split ? split->prefix : "";
    const std::string label = quant_label(path);
    models.push_back({.label = label.empty() ? std::string(base_name(path)) : label,
                      .files = {path},
                      .n_parts = split ? split->n_parts : 1});
  }
  return models;
}

HubChoice choose_files(const std::string& repo, const std::vector<std::string>& paths, const std::string& tag,
                       const std::string& file) {
  const std::vector<HubGguf> models = gguf_models(paths);
  const std::string projector = projector_of(paths);
  if (!file.empty()) {
    for (const HubGguf& model : models)
      if (std::find(model.files.begin(), model.files.end(), file) != model.files.end())
        return whole(repo, model, projector);
    if (!contains(paths, file)) throw Error("{} has no file '{}'", printable(repo), printable(file));
    return {.files = {file}, .open = file, .label = file};
  }
  const bool by_tag = !tag.empty() && to_upper(tag) != "LATEST";
  const bool as_directory = to_upper(tag) == "SAFETENSORS" || (!by_tag && models.empty());
  if (as_directory && has_weights(paths)) return {.label = "safetensors"};
  if (models.empty())
    throw Error(
        "{} has {}", printable(repo),
        has_weights(paths)
            ? fmt::format("no GGUF file for the tag '{}', only safetensors files: leave the tag out", printable(tag))
            : "no model: expected GGUF files, or config.json with model.safetensors");
  const HubGguf* model = by_tag ? find_tag(models, tag) : preferred(models);
  if (model == nullptr) throw Error("{} has no '{}': it has {}", printable(repo), printable(tag), labels_of(models));
  return whole(repo, *model, projector);
}

}  // namespace ingot
