#include "model/config/arch_file.h"

#include <algorithm>
#include <deque>
#include <list>
#include <string>

#include "base/error.h"
#include "model/config/kind.h"

namespace ingot {
namespace {

constexpr size_t kMaxArchBytes = 1 << 16;
constexpr int kMaxArchFiles = 64, kMaxPeriod = 64, kMaxPartsOfLayer = 8, kMaxLayerNumber = 1024;
constexpr size_t kMaxNameBytes = 64;

constexpr std::pair<const char*, bool Arch::*> kFlags[] = {
    {"hf_window_opt_in", &Arch::hf_window_opt_in},
    {"pre_norms", &Arch::pre_norms},
    {"sum_norms", &Arch::sum_norms},
    {"post_norms", &Arch::post_norms},
    {"attention_norms_outputs", &Arch::attention_norms_outputs},
    {"norms_all_heads", &Arch::norms_all_heads},
    {"norm_weight_plus_one", &Arch::norm_weight_plus_one},
    {"scales_embedding", &Arch::scales_embedding},
    {"fused", &Arch::fused},
    {"gated", &Arch::gated},
    {"gguf_ffn_norm_is_post", &Arch::gguf_ffn_norm_is_post},
    {"final_norm_is_embed", &Arch::final_norm_is_embed},
    {"lists_kv_heads", &Arch::lists_kv_heads},
    {"first_is_global", &Arch::first_is_global},
    {"rope_needs_window", &Arch::rope_needs_window},
    {"tiles_value_heads", &Arch::tiles_value_heads},
    {"norms_heads", &Arch::norms_heads},
    {"norms_after_rope", &Arch::norms_after_rope},
    {"gates_outputs", &Arch::gates_outputs},
    {"softplus_gate", &Arch::softplus_gate},
    {"norms_embedding", &Arch::norms_embedding},
    {"normalizes_embedding", &Arch::normalizes_embedding},
    {"one_norm", &Arch::one_norm},
    {"one_part", &Arch::one_part},
    {"of_experts", &Arch::of_experts},
    {"rope_opt_in", &Arch::rope_opt_in},
    {"rounds_embedding_scale", &Arch::rounds_embedding_scale},
    {"routers_mark_experts", &Arch::routers_mark_experts},
    {"fused_ffn", &Arch::fused_ffn},
    {"norm_by_eps", &Arch::norm_by_eps},
    {"scales_logits", &Arch::scales_logits},
    {"scales_expert_input", &Arch::scales_expert_input},
    {"norms_values", &Arch::norms_values},
    {"values_may_be_keys", &Arch::values_may_be_keys},
    {"dense_beside_experts", &Arch::dense_beside_experts},
    {"gates_attention", &Arch::gates_attention},
    {"interleaved_experts", &Arch::interleaved_experts},
    {"normalizes_experts", &Arch::normalizes_experts},
    {"yarn_truncates", &Arch::yarn_truncates},
    {"bidirectional", &Arch::bidirectional},
    {"encoder", &Arch::encoder},
    {"learned_positions", &Arch::learned_positions},
    {"positions_after_pad", &Arch::positions_after_pad},
};
constexpr std::pair<const char*, int Arch::*> kNumbers[] = {
    {"window_period", &Arch::window_period},
    {"no_rope_period", &Arch::no_rope_period},
    {"wide_scale_layers", &Arch::wide_scale_layers},
};
constexpr std::pair<const char*, RopeLayout> kRopes[] = {{"half_split", RopeLayout::kHalfSplit},
                                                         {"interleaved", RopeLayout::kInterleaved}};
constexpr std::pair<const char*, Activation> kActivationColumn[] = {{"silu", Activation::kSilu},
                                                                    {"gelu_tanh", Activation::kGeluTanh},
                                                                    {"gelu", Activation::kGelu},
                                                                    {"clamped_swiglu", Activation::kClampedSwiglu},
                                                                    {"squared_relu", Activation::kSquaredRelu}};
constexpr std::pair<const char*, Scoring> kScorings[] = {{"softmax", Scoring::kSoftmax},
                                                         {"sigmoid", Scoring::kSigmoid},
                                                         {"sparse_mixer", Scoring::kSparseMixer}};
constexpr std::pair<const char*, NormKind> kNorms[] = {{"rms", NormKind::kRms}, {"layer", NormKind::kLayer}};

// The rows that files have added, with the texts that they point at. They are never removed, because configs point at
// them.
struct AddedArch {
  Arch arch{};
  std::list<std::string> texts;
};
std::deque<AddedArch>& added() {
  static std::deque<AddedArch> all;
  return all;
}

template <class Enum>
Enum named(const Json& value) {
  std::string known;
  for (const auto& [name, meaning] : arch_names<Enum>()) {
    if (value.string() == name) return meaning;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  throw value.error("'{}' is not known: expected one of {}", printable(value.string(), kMaxNameBytes), known);
}

const char* text_of(const Json& value, size_t max_bytes, AddedArch& row) {
  const std::string_view text = value.string();
  if (text.empty() || text.size() > max_bytes || text.find('\0') != text.npos)
    throw value.error("has {} bytes: expected 1 to {}", text.size(), max_bytes);
  return row.texts.emplace_back(text).c_str();
}

// Checks the parts of each layer of the period.
const char* layers_of(const Json& value, AddedArch& row) {
  row.arch.layers = text_of(value, kMaxPeriod * kMaxPartsOfLayer * kMaxNameBytes, row);
  if (arch_period(row.arch) > kMaxPeriod)
    throw value.error("has a period of {} layers: at most {} are supported", arch_period(row.arch), kMaxPeriod);
  for (int layer = 0; layer < arch_period(row.arch); ++layer) {
    try {
      const size_t n = arch_parts(row.arch, layer, false).size();
      if (n < 1 || n > kMaxPartsOfLayer)
        throw Error("layer {} has {} parts: expected 1 to {}", layer, n, kMaxPartsOfLayer);
    } catch (const Error& error) {
      throw value.error("{}", error.what());
    }
  }
  return row.arch.layers;
}

// Keys with the values that a directory has if it lacks them; kept as text, because they are read with each directory.
const char* defaults_of(const Json& value, AddedArch& row) {
  const char* text = text_of(value, kMaxArchBytes, row);
  if (!JsonDocument::parse(text, "hf_defaults").root().is_object()) throw value.error("is not the text of an object");
  return text;
}

void read_column(std::string_view key, const Json& value, AddedArch& row) {
  Arch& arch = row.arch;
  for (const auto& [name, flag] : kFlags)
    if (key == name) return void(arch.*flag = value.boolean());
  for (const auto& [name, number] : kNumbers)
    if (key == name) return void(arch.*number = static_cast<int>(value.integer(0, kMaxLayerNumber)));
  if (key == "gguf_name") return void(arch.gguf_name = text_of(value, kMaxNameBytes, row));
  if (key == "hf_name") return void(arch.hf_name = text_of(value, kMaxNameBytes, row));
  if (key == "layers") return void(arch.layers = layers_of(value, row));
  if (key == "hf_defaults") return void(arch.hf_defaults = defaults_of(value, row));
  if (key == "gguf_rope") return void(arch.gguf_rope = named<RopeLayout>(value));
  if (key == "hf_rope") return void(arch.hf_rope = named<RopeLayout>(value));
  if (key == "activation") return void(arch.activation = named<Activation>(value));
  if (key == "scoring") return void(arch.scoring = named<Scoring>(value));
  if (key == "norm") return void(arch.norm = named<NormKind>(value));
  if (key == "score_scale") {
    if (!(value.number() > 0 && value.number() < 1e6)) throw value.error("expected a positive number");
    return void(arch.score_scale = static_cast<float>(value.number()));
  }
  if (key == "local_theta") {
    if (value.is_string() && value.string() == "same") return void(arch.local_theta = kSameTheta);
    if (!(value.number() > 0 && value.number() < 1e12)) throw value.error("expected a positive number, or \"same\"");
    return void(arch.local_theta = static_cast<float>(value.number()));
  }
  throw value.error("is no column of an architecture");
}

// Variants that no code computes.
void check_row(const Arch& arch, const JsonDocument& document) {
  if (arch.gguf_name == nullptr || arch.hf_name == nullptr)
    throw Error("{}: 'gguf_name' or 'hf_name' is missing", printable(document.source()));
  if (arch.encoder && (!arch.bidirectional || arch_has(arch, kExpertsPart)))
    throw Error("{}: an encoder is bidirectional and has no experts", printable(document.source()));
  if (arch.activation == Activation::kSquaredRelu && arch.gated)
    throw Error("{}: a squared ReLU has no gate: 'gated' must be false", printable(document.source()));
  if (arch.learned_positions && !arch.encoder)
    throw Error("{}: only an encoder has learned positions", printable(document.source()));
  if (arch.gguf_rope == RopeLayout::kHalfSplit && arch.hf_rope == RopeLayout::kInterleaved)
    throw Error("{}: 'hf_rope' is interleaved, and 'gguf_rope' is not: not supported", printable(document.source()));
}

AddedArch read_row(const JsonDocument& document) {
  AddedArch row;
  for (const auto& [key, value] : document.root().members()) read_column(key, value, row);
  check_row(row.arch, document);
  return row;
}

}  // namespace

std::span<const std::pair<const char*, bool Arch::*>> arch_flags() { return kFlags; }
std::span<const std::pair<const char*, int Arch::*>> arch_numbers() { return kNumbers; }
template <>
std::span<const std::pair<const char*, RopeLayout>> arch_names() { return kRopes; }
template <>
std::span<const std::pair<const char*, Activation>> arch_names() { return kActivationColumn; }
template <>
std::span<const std::pair<const char*, Scoring>> arch_names() { return kScorings; }
template <>
std::span<const std::pair<const char*, NormKind>> arch_names() { return kNorms; }

void check_arch(const JsonDocument& document) { read_row(document); }

const Arch& add_arch(const JsonDocument& document) {
  if (added().size() >= kMaxArchFiles)
    throw Error("{}: {} architectures have been read from files, and no more are supported",
                printable(document.source()), kMaxArchFiles);
  const Arch& kept = added().emplace_back(read_row(document)).arch;  // a list's texts stay where they are
  add_to_table(kept);
  return kept;
}

const Arch& add_arch_file(const std::string& path) { return add_arch(JsonDocument::read(path, kMaxArchBytes)); }

}  // namespace ingot
