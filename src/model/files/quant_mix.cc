#include "model/files/quant_mix.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace ingot {
namespace {

using enum Role;
using enum Where;
constexpr bool kSharedKv = true;

constexpr MixRule kQ4_0[] = {{kFfnDown, kFirst8th, Format::Q4_1, false, true}};
constexpr MixRule kQ5_0[] = {{kFfnDown, kFirst8th, Format::Q5_1, false, true}};
constexpr MixRule kQ2_K[] = {{kAttnV, kAll, Format::Q4_K, kSharedKv},
                             {kAttnV, kAll, Format::Q3_K},
                             {kAttnOut, kAll, Format::Q3_K},
                             {kFfnDown, kAll, Format::Q3_K}};
constexpr MixRule kQ2_K_S[] = {{kAttnV, kAll, Format::Q4_K, kSharedKv}, {kFfnDown, kFirst8th, Format::Q4_K}};
constexpr MixRule kQ3_K_M[] = {{kAttnV, kFirstTwo, Format::Q5_K},
                               {kAttnV, kAll, Format::Q4_K},
                               {kAttnOut, kAll, Format::Q4_K},
                               {kFfnDown, kFirst16th, Format::Q5_K},
                               {kFfnDown, kAll, Format::Q4_K}};
constexpr MixRule kQ3_K_L[] = {
    {kAttnV, kAll, Format::Q5_K}, {kAttnOut, kAll, Format::Q5_K}, {kFfnDown, kAll, Format::Q5_K}};
constexpr MixRule kQ4_K_S[] = {{kAttnV, kFirstFour, Format::Q5_K}, {kFfnDown, kFirst8th, Format::Q5_K}};
constexpr MixRule kMoreQ6_K[] = {{kAttnV, kMoreBits, Format::Q6_K}, {kFfnDown, kMoreBits, Format::Q6_K}};
constexpr MixRule kIq4[] = {{kAttnV, kAll, Format::Q5_K, kSharedKv}, {kFfnDown, kFirst8th, Format::Q5_K, false, false}};
constexpr MixRule kMxfp4[] = {{kEmbedding, kAll, Format::Q8_0}};

constexpr Mix kMixes[] = {
    {"F32", 0, Format::F32, {}, Format::F32},
    {"F16", 1, Format::F16, {}, Format::F16},
    {"BF16", 32, Format::BF16, {}, Format::BF16},
    {"Q8_0", 7, Format::Q8_0, {}, Format::Q8_0},
    {"Q6_K", 18, Format::Q6_K},
    {"Q5_K_M", 17, Format::Q5_K, kMoreQ6_K},
    {"Q5_K_S", 16, Format::Q5_K},
    {"Q5_1", 9, Format::Q5_1},
    {"Q5_0", 8, Format::Q5_0, kQ5_0},
    {"Q4_K_M", 15, Format::Q4_K, kMoreQ6_K},
    {"Q4_K_S", 14, Format::Q4_K, kQ4_K_S},
    {"Q4_1", 3, Format::Q4_1},
    {"Q4_0", 2, Format::Q4_0, kQ4_0},
    {"IQ4_NL", 25, Format::IQ4_NL, kIq4},
    {"IQ4_XS", 30, Format::IQ4_XS, kIq4},
    {"MXFP4", 38, Format::MXFP4, kMxfp4, Format::Q8_0},
    {"Q3_K_L", 13, Format::Q3_K, kQ3_K_L},
    {"Q3_K_M", 12, Format::Q3_K, kQ3_K_M},
    {"Q3_K_S", 11, Format::Q3_K},
    {"Q2_K", 10, Format::Q2_K, kQ2_K},
    {"Q2_K_S", 21, Format::Q2_K, kQ2_K_S},
};

struct Alias {
  std::string_view name, of;
};
constexpr Alias kAliases[] = {{"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};

// If rows are not whole blocks of 256, these formats with blocks of 32 replace the mix's.
struct Fallback {
  Format from, to;
};
constexpr Fallback kFallbacks[] = {{Format::Q2_K, Format::Q4_0}, {Format::Q3_K, Format::Q4_0},
                                   {Format::Q4_K, Format::Q5_0}, {Format::Q5_K, Format::Q5_1},
                                   {Format::Q6_K, Format::Q8_0}, {Format::IQ4_XS, Format::IQ4_NL}};

struct RoleName {
  std::string_view part;
  Role role;
};
constexpr RoleName kRoles[] = {{"attn_qkv.weight", kAttnV},
                               {"attn_kv_b.weight", kAttnV},
                               {"attn_v.weight", kAttnV},
                               {"attn_output.weight", kAttnOut},
                               {"ffn_down", kFfnDown}};

// Small tensors and those that lose too much: routers, convolutions, positions.
constexpr std::string_view kNeverQuantized[] = {
    "_norm.weight",  "ffn_gate_inp.weight", "altup",      "laurel",         "per_layer_model_proj",
    "position_embd", "token_types",         "ssm_conv1d", "shortconv.conv", "attn_rel_b",
    "time_mix_lerp", "time_mix_w1",         "time_mix_w2", "time_mix_v1",   "time_mix_v2",
    "time_mix_a1",   "time_mix_a2",         "time_mix_g1", "time_mix_g2",   "per_layer_token_embd"};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::string upper(std::string_view name) {
  std::string out(name);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return out;
}

Role role_of(std::string_view name) {
  if (name == "token_embd.weight") return kEmbedding;
  if (name == "output.weight") return kOutput;
  for (const RoleName& row : kRoles)
    if (contains(name, row.part)) return row.role;
  return kOther;
}

int layer_of(std::string_view name) {
  int layer = 0;
  if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return layer;
}

bool holds(Where where, int layer, int n) {
  switch (where) {
    case kAll: return true;
    case kFirstTwo: return layer < 2;
    case kFirstFour: return layer < 4;
    case kFirst16th: return layer < n / 16;
    case kFirst8th: return layer < n / 8;
    case kMoreBits: return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
  }
  CHECK(false);
}

Format fitting(Format format, int64_t n_in) {
  const auto fits = [&](Format f) { return n_in % info(f).block_size == 0; };
  if (fits(format)) return format;
  for (const Fallback& row : kFallbacks)
    if (row.from == format && fits(row.to)) return row.to;
  return Format::F16;
}

Format of_rules(const Mix& mix, const MixOptions& options, const MixModel& model, Role role, int layer) {
  for (const MixRule& rule : mix.rules) {
    if (rule.role != role || !holds(rule.where, layer, model.n_layers)) continue;
    if (rule.shared_kv && model.heads_per_kv < 4) continue;
    if (rule.with_importance && *rule.with_importance != options.with_importance) continue;
    return rule.format;
  }
  return mix.base;
}

}  // namespace

std::string mix_names() {
  std::string names;
  for (const Mix& mix : kMixes) names += (names.empty() ? "" : ", ") + std::string(mix.name);
  return names;
}

std::optional<uint32_t> file_type_of(Format format) {
  for (const Mix& mix : kMixes)
    if (mix.base == format) return mix.file_type;
  return std::nullopt;
}

const Mix& find_mix(std::string_view name) {
  std::string wanted = upper(name);
  for (const Alias& alias : kAliases)
    if (wanted == alias.name) wanted = alias.of;
  for (const Mix& mix : kMixes)
    if (wanted == mix.name) return mix;
  throw UsageError("unknown type '{}': use one of {}", printable(name, 64), mix_names());
}

// Quantizing the layers' own inputs costs more quality than the bytes are worth, so only the user's word does it.
bool is_quantizable(std::string_view name, int n_dims) {
  if (n_dims < 2 || !name.ends_with("weight")) return false;
  return std::none_of(std::begin(kNeverQuantized), std::end(kNeverQuantized),
                      [&](auto part) { return contains(name, part); });
}

Format choose_format(const Mix& mix, const MixOptions& options, const MixModel& model, std::string_view name,
                     int64_t n_in) {
  const Role role = role_of(name);
  if (name == kLayerInputsTable) return fitting(options.layer_inputs.value_or(Format::F16), n_in);
  if (role == kEmbedding && options.embedding) return fitting(*options.embedding, n_in);
  if (role == kOutput || (role == kEmbedding && model.tied)) {
    if (options.output) return fitting(*options.output, n_in);
    return fitting(n_in % info(mix.base).block_size == 0 ? mix.output : Format::Q8_0, n_in);
  }
  Format format = of_rules(mix, options, model, role, layer_of(name));
  if (model.is_large && role == kAttnV && (format == Format::Q3_K || format == Format::Q4_K)) format = Format::Q5_K;
  return fitting(format, n_in);
}

}  // namespace ingot
