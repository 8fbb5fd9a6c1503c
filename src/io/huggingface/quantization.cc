#include "io/huggingface/quantization.h"

#include <algorithm>

#include "base/ascii.h"
#include "io/huggingface/directory.h"
#include "text/tokenizers/pattern.h"

namespace ingot {
namespace {

constexpr int kMaxGroup = 1 << 20, kMaxBlock = 1 << 16;
constexpr const char* kSupported =
    "supported are MLX (affine, mxfp4, mxfp8, nvfp4), gptq, awq, fp8, fbgemm_fp8, mxfp4, modelopt (FP8, MXFP8, MXFP4 "
    "and NVFP4) and "
    "compressed-tensors (pack-quantized, int-quantized, float-quantized, mxfp8-quantized, mxfp4-pack-quantized, "
    "nvfp4-pack-quantized); use one "
    "of these, the model's unquantized checkpoint, or a GGUF file of it";

std::string text_or(const Json& object, const char* key, const char* fallback) {
  const auto value = object.find(key);
  return std::string(value ? value->string() : fallback);
}

bool flag_or(const Json& object, const char* key, bool fallback) {
  const auto value = object.find(key);
  return value ? value->boolean() : fallback;
}

int one_of(const Json& value, std::initializer_list<int> allowed) {
  const int64_t number = value.integer(INT32_MIN, INT32_MAX);
  std::string list;
  for (const int choice : allowed) {
    if (number == choice) return choice;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", choice);
  }
  throw value.error("{} is not supported: expected {}", number, list);
}

// A group of -1 in the file means whole rows; in ingot, 0.
int group_size(const Json& object) {
  const Json value = object.at("group_size");
  const int64_t size = value.integer(-1, kMaxGroup);
  if (size == 0) throw value.error("0 is not a group size");
  return static_cast<int>(std::max<int64_t>(size, 0));
}

// Throws an Error that lists the names if `value` is not one of them.
void check_name(const Json& object, const char* key, const std::string& value,
                std::initializer_list<const char*> allowed) {
  std::string list;
  for (const char* name : allowed) {
    if (value == name) return;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
  }
  throw object.error("'{}' of '{}' is not supported: expected {}; {}", key, printable(value, 64), list, kSupported);
}

// ---- MLX ----

struct MlxMode {
  const char* name;
  QuantLayout layout;
  // Affine: mlx's defaults for layers that lack the values. Other modes: the only valid values.
  int bits, group;
};
constexpr MlxMode kMlxModes[] = {{"affine", QuantLayout::kMlxAffine, 4, 64},
                                 {"mxfp4", QuantLayout::kMlxMxfp4, 4, 32},
                                 {"mxfp8", QuantLayout::kMlxMxfp8, 8, 32},
                                 {"nvfp4", QuantLayout::kMlxNvfp4, 4, 16}};

// The scheme of a layer's own object. Without a mode the scheme is affine even if the model has another mode, as in
// mlx.
QuantScheme read_mlx_scheme(const Json& json) {
  const std::string name = text_or(json, "mode", "affine");
  const auto mode =
      std::find_if(std::begin(kMlxModes), std::end(kMlxModes), [&](const MlxMode& m) { return name == m.name; });
  if (mode == std::end(kMlxModes))
    throw json.at("mode").error("'{}' is not supported: expected affine, mxfp4, mxfp8 or nvfp4", printable(name, 64));
  const auto bits = json.find("bits"), group = json.find("group_size");
  QuantScheme scheme{.layout = mode->layout, .bits = mode->bits, .group = mode->group, .symmetric = false};
  if (mode->layout == QuantLayout::kMlxAffine) {
    if (bits) scheme.bits = one_of(*bits, {2, 3, 4, 5, 6, 8});
    if (group) scheme.group = one_of(*group, {32, 64, 128});
  } else {
    if (bits) one_of(*bits, {mode->bits});
    if (group) one_of(*group, {mode->group});
  }
  return scheme;
}

// ---- GPTQ, AWQ, FP8 ----

std::shared_ptr<const Pattern> read_pattern(const Json& where, std::string_view expression) {
  try {
    return std::make_shared<const Pattern>(expression);
  } catch (const Error& error) {
    throw where.error("{}", error.what());
  }
}

QuantScheme read_gptq(const Json& json) {
  const std::string format = text_or(json, json.find("checkpoint_format") ? "checkpoint_format" : "format", "gptq");
  check_name(json, "checkpoint_format", format, {"gptq", "gptq_v2"});
  if (flag_or(json, "is_marlin_format", false))
    throw json.error("weights packed for Marlin are not supported: {}", kSupported);
  return {.layout = QuantLayout::kGptq,
          .bits = one_of(json.at("bits"), {2, 3, 4, 8}),
          .group = group_size(json),
          .symmetric = flag_or(json, "sym", true),
          .zeros_less_one = format == "gptq"};
}

QuantScheme read_awq(const Json& json) {
  const std::string format = lower(text_or(json, json.find("version") ? "version" : "format", "gemm"));
  check_name(json, "version", format, {"gemm", "gemv"});
  check_name(json, "backend", text_or(json, "backend", "auto") == "llm-awq" ? "llm-awq" : "auto", {"auto"});
  const auto bits = json.find(json.find("w_bit") ? "w_bit" : "bits");
  const auto group = json.find("q_group_size");
  return {.layout = format == "gemv" ? QuantLayout::kAwqRows : QuantLayout::kAwq,
          .bits = bits ? one_of(*bits, {4}) : 4,
          .group = group ? static_cast<int>(std::max<int64_t>(group->integer(-1, kMaxGroup), 0)) : group_size(json),
          .symmetric = false};
}

void read_block(const Json& value, QuantScheme& scheme) {
  const std::vector<Json> sizes = value.elements();
  if (sizes.size() != 2) throw value.error("expected 2 sizes, got {}", sizes.size());
  scheme.block_rows = sizes[0].integer(1, kMaxBlock);
  scheme.block_cols = sizes[1].integer(1, kMaxBlock);
}

QuantScheme read_fp8(const Json& json) {
  check_name(json, "fmt", text_or(json, "fmt", "e4m3"), {"e4m3"});
  QuantScheme scheme{.layout = QuantLayout::kFloat8};
  if (const auto block = json.find("weight_block_size")) read_block(*block, scheme);
  return scheme;
}

// ---- ModelOpt ----

// ModelOpt's algorithms and their weight layouts. The quantization of activations (W4A16, W4A8) is ignored.
struct ModelOptAlgorithm {
  const char* name;
  QuantScheme scheme;
};
constexpr QuantScheme kOneFloat8{.layout = QuantLayout::kFloat8};
constexpr QuantScheme kModelOptMx{.layout = QuantLayout::kModelOptMxfp4, .bits = 4, .group = 32};
constexpr QuantScheme kModelOptNv{.layout = QuantLayout::kModelOptNvfp4, .bits = 4, .group = 16};
constexpr ModelOptAlgorithm kModelOptAlgorithms[] = {
    {"FP8", kOneFloat8},
    {"FP8_PER_CHANNEL_PER_TOKEN", kOneFloat8},
    {"FP8_PB_WO", {.layout = QuantLayout::kFloat8, .block_rows = 128, .block_cols = 128}},
    {"MXFP8", {.layout = QuantLayout::kFloat8, .block_rows = 1, .block_cols = 32}},
    {"MXFP4", kModelOptMx},
    {"W4A8_MXFP4_FP8", kModelOptMx},
    {"NVFP4", kModelOptNv},
    {"W4A16_NVFP4", kModelOptNv},
    {"W4A8_NVFP4_FP8", kModelOptNv},
    {"NVFP4_AWQ", kModelOptNv},
};

QuantScheme read_algorithm(const Json& json) {
  std::string name(json.at("quant_algo").string());
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  for (const ModelOptAlgorithm& row : kModelOptAlgorithms) {
    if (name != row.name) continue;
    const auto group = json.find("group_size");
    if (row.scheme.group > 0 && group) one_of(*group, {row.scheme.group});
    return row.scheme;
  }
  throw json.at("quant_algo").error("'{}' is not supported: {}", printable(name, 64), kSupported);
}

// ---- compressed-tensors ----

// Refuses rotations, which change the results of the matrices, and sparse matrices.
void refuse_parts(const Json& json) {
  const auto transform = json.find("transform_config"), sparsity = json.find("sparsity_config");
  const auto groups = transform ? transform->find("config_groups") : std::nullopt;
  if (groups && !groups->members().empty()) throw transform->error("is not supported: {}", kSupported);
  if (sparsity) check_name(*sparsity, "format", text_or(*sparsity, "format", "dense"), {"dense"});
}

// Formats of 4 and 8 bits with fixed blocks and scales.
struct MxFormat {
  const char* name;
  QuantLayout layout;
  int bits, group;
  const char* strategy;
};
constexpr MxFormat kMxFormats[] = {{"mxfp8-quantized", QuantLayout::kFloat8, 8, 32, "group"},
                                   {"mxfp4-pack-quantized", QuantLayout::kPackedMxfp4, 4, 32, "group"},
                                   {"nvfp4-pack-quantized", QuantLayout::kPackedNvfp4, 4, 16, "tensor_group"}};

QuantScheme read_mx_weights(const Json& weights, const MxFormat& format) {
  check_name(weights, "type", text_or(weights, "type", "int"), {"float"});
  check_name(weights, "strategy", text_or(weights, "strategy", format.strategy), {format.strategy});
  if (!flag_or(weights, "symmetric", true))
    throw weights.at("symmetric").error("false is not supported for {}: {}", format.name, kSupported);
  one_of(weights.at("num_bits"), {format.bits});
  one_of(weights.at("group_size"), {format.group});
  if (format.layout == QuantLayout::kFloat8)
    return {.layout = format.layout, .block_rows = 1, .block_cols = format.group};
  return {.layout = format.layout, .bits = format.bits, .group = format.group};
}

QuantScheme read_weights(const Json& weights, std::string_view format) {
  for (const MxFormat& mx : kMxFormats)
    if (format == mx.name) return read_mx_weights(weights, mx);
  const std::string type = text_or(weights, "type", "int");
  const bool integers = type == "int";
  check_name(weights, "type", type, {"int", "float"});
  QuantScheme scheme{.symmetric = flag_or(weights, "symmetric", true)};
  const auto group = weights.find("group_size");
  const char* fallback = !group ? "tensor" : group->integer(-1, kMaxGroup) > 0 ? "group" : "channel";
  const std::string strategy = text_or(weights, "strategy", fallback);
  check_name(weights, "strategy", strategy, {"tensor", "channel", "group", "block"});
  if (strategy == "group") scheme.group = group_size(weights);
  if (format == "pack-quantized") {
    if (!integers || strategy == "block") throw weights.error("pack-quantized weights are integers in groups or rows");
    scheme.layout = QuantLayout::kPacked;
    scheme.bits = one_of(weights.at("num_bits"), {2, 3, 4, 5, 6, 7, 8});
    return scheme;
  }
  one_of(weights.at("num_bits"), {8});
  scheme.layout = integers ? QuantLayout::kInt8 : QuantLayout::kFloat8;
  if (!scheme.symmetric && !integers)
    throw weights.at("symmetric").error("false is not supported for {}: {}", format, kSupported);
  if (format != "naive-quantized" && integers != (format == "int-quantized"))
    throw weights.error("weights of type '{}' contradict the format {}", type, format);
  if (integers && strategy == "block") throw weights.error("integers in blocks are not supported: {}", kSupported);
  if (strategy == "block") read_block(weights.at("block_structure"), scheme);
  if (!integers && strategy == "group") scheme.block_rows = 1, scheme.block_cols = scheme.group;
  return scheme;
}

}  // namespace

void HfQuantization::read_mlx(const Json& json) {
  method_ = "MLX";
  json.at("bits");
  json.at("group_size");
  scheme_ = read_mlx_scheme(json);
  for (const auto& [key, value] : json.members()) {
    if (value.is_object()) {
      overrides_.emplace(key, read_mlx_scheme(value));
    } else if (value.kind() == Json::Kind::kBool) {
      overrides_.emplace(key, value.boolean() ? scheme_ : std::nullopt);
    }
  }
}

// Reads config.json or hf_quant_config.json, which have the same keys. With MIXED_PRECISION, each module has its own
// algorithm. A module is a matrix or a group of matrices, such as the experts of a layer.
void HfQuantization::read_modelopt(const Json& json) {
  method_ = "modelopt";
  if (json.at("quant_algo").string() != "MIXED_PRECISION") {
    scheme_ = read_algorithm(json);
    return;
  }
  for (const auto& [module, own] : json.at("quantized_layers").members())
    subtrees_.emplace(module, read_algorithm(own));
}

// GPTQModel's `dynamic` maps an expression to the settings that differ for the matching modules. The expression must
// match from the start of a module's name. The prefix "-:" means that the modules are not quantized.
void HfQuantization::read_rules(const Json& dynamic) {
  for (const auto& [key, own] : dynamic.members()) {
    const bool leaves = key.starts_with("-:");
    Rule rule{.pattern = read_pattern(own, key.substr(leaves || key.starts_with("+:") ? 2 : 0)),
              .scheme = std::nullopt};
    if (!leaves) {
      rule.scheme = scheme_;
      if (const auto bits = own.find("bits")) rule.scheme->bits = one_of(*bits, {2, 3, 4, 8});
      if (own.find("group_size")) rule.scheme->group = group_size(own);
      rule.scheme->symmetric = flag_or(own, "sym", rule.scheme->symmetric);
    }
    rules_.push_back(std::move(rule));
  }
}

HfQuantization::Group HfQuantization::read_group(const Json& json, std::string_view format) {
  Group group;
  const auto own = json.find("format");
  if (own) format = own->string();
  check_name(json, "format", std::string(format),
             {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mxfp8-quantized",
              "mxfp4-pack-quantized", "nvfp4-pack-quantized"});
  group.scheme = read_weights(json.at("weights"), format);
  for (const Json& target : json.at("targets").elements()) {
    const std::string_view name = target.string();
    if (!name.starts_with("re:")) {
      group.names.emplace_back(name);
      continue;
    }
    group.patterns.push_back(read_pattern(target, name.substr(3)));
  }
  return group;
}

void HfQuantization::read_groups(const Json& json) {
  refuse_parts(json);
  const std::string format = text_or(json, "format", "");
  for (const auto& [name, group] : json.at("config_groups").members())
    if (group.find("weights")) groups_.push_back(read_group(group, format));
}

std::optional<HfQuantization> HfQuantization::read(const Json& config) {
  auto json = config.find("quantization");
  if (!json) json = config.find("quantization_config");
  if (!json) {
    const auto text = config.find("text_config");
    return text ? read(*text) : std::nullopt;
  }
  HfQuantization out;
  if (json->find("quant_algo")) {
    out.read_modelopt(*json);
    return out;
  }
  const auto method = json->find("quant_method");
  if (!method) {
    out.read_mlx(*json);
    return out;
  }
  out.method_ = printable(method->string(), 64);
  if (out.method_ == "gptq") {
    out.scheme_ = read_gptq(*json);
    if (const auto dynamic = json->find("dynamic")) out.read_rules(*dynamic);
  } else if (out.method_ == "awq") {
    out.scheme_ = read_awq(*json);
  } else if (out.method_ == "fp8" || out.method_ == "fbgemm_fp8") {
    out.scheme_ = read_fp8(*json);
  } else if (out.method_ == "mxfp4") {
    out.scheme_ = QuantScheme{.layout = QuantLayout::kMxfp4Blocks, .bits = 4, .group = 32};
  } else if (out.method_ == "compressed-tensors") {
    out.read_groups(*json);
  } else {
    throw method->error("weights quantized with '{}' are not supported: {}", out.method_, kSupported);
  }
  return out;
}

std::optional<HfQuantization> HfQuantization::read(const HfDirectory& directory) {
  if (auto said = read(directory.document("config.json").root())) return said;
  const auto own_file = directory.find_document("hf_quant_config.json");
  return own_file ? read(own_file->root()) : std::nullopt;
}

// A module's own name has priority over an expression, and an expression over a class. The module's class is unknown,
// so every class matches.
const QuantScheme* HfQuantization::find(std::string_view module) const {
  if (const auto it = overrides_.find(module); it != overrides_.end()) return it->second ? &*it->second : nullptr;
  for (std::string_view outer = module; !subtrees_.empty() && !outer.empty();) {
    if (const auto it = subtrees_.find(outer); it != subtrees_.end()) return &it->second;
    const size_t dot = outer.rfind('.');
    outer = outer.substr(0, dot == outer.npos ? 0 : dot);
  }
  for (const Rule& rule : rules_)
    if (rule.pattern->matches_start(module)) return rule.scheme ? &*rule.scheme : nullptr;
  if (scheme_) return &*scheme_;
  for (const Group& group : groups_)
    if (std::find(group.names.begin(), group.names.end(), module) != group.names.end()) return &group.scheme;
  for (const Group& group : groups_)
    for (const auto& pattern : group.patterns)
      if (pattern->matches_start(module)) return &group.scheme;
  for (const Group& group : groups_)
    for (const std::string& name : group.names)
      if (name.find('.') == name.npos && name != "lm_head") return &group.scheme;
  return nullptr;
}

}  // namespace ingot
