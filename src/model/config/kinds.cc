#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "model/config/kind.h"

namespace ingot {

// Each kind is in a file of its own name. A new kind has a line in both lists.
extern const PartKind kLatentAttentionPart;
extern const PartKind kDeltaNetPart;
extern const PartKind kGatedDeltaPart;
extern const PartKind kShortConvPart;
extern const PartKind kMamba1Part, kMamba2Part;
extern const PartKind kKdaPart, kRgLruPart;
extern const PartKind kRwkv7Part, kChannelMixPart;
extern const PartKind kSharedTransformerPart;
extern const PartKind kLayerEndPart;
extern const PartKind kAltUpPredictPart, kLaurelPart, kAltUpCorrectPart;

namespace {

constexpr const PartKind* kKinds[] = {
    &kAttentionPart,
    &kLatentAttentionPart,
    &kDeltaNetPart,
    &kGatedDeltaPart,
    &kShortConvPart,
    &kMamba1Part,
    &kMamba2Part,
    &kKdaPart,
    &kRgLruPart,
    &kRwkv7Part,
    &kChannelMixPart,
    &kSharedTransformerPart,
    &kFeedForwardPart,
    &kExpertsPart,
    &kDenseExpertsPart,
    &kLayerEndPart,
    &kAltUpPredictPart,
    &kLaurelPart,
    &kAltUpCorrectPart,
};

const PartKind& experts_kind(const Arch& arch) { return arch.dense_beside_experts ? kDenseExpertsPart : kExpertsPart; }

const PartKind& kind_named(const Arch& arch, std::string_view name, bool has_experts) {
  if (name == "ffn") return has_experts ? experts_kind(arch) : kFeedForwardPart;
  for (const PartKind* kind : kKinds)
    if (name == kind->name) return *kind;
  std::string known;
  for (const PartKind* kind : kKinds) known += std::string(", ") + kind->name;
  throw Error("'{}' is no kind of layer part: known are ffn{}", printable(name, 64), known);
}

std::string_view take(std::string_view& rest, std::string_view ends) {
  const size_t end = std::min(rest.find_first_of(ends), rest.size());
  const std::string_view first = rest.substr(0, end);
  rest.remove_prefix(end);
  return first;
}

bool has_states(const PartKind& kind) { return kind.states != nullptr; }
bool has_kv(const PartKind& kind) { return kind.keeps_kv; }

const PartKind* first_mixer(const Arch& arch, bool (*keeps)(const PartKind&)) {
  for (int layer = 0; layer < arch_period(arch); ++layer)
    for (const LayerPart& part : arch_parts(arch, layer, false))
      if (part.kind->is_mixer && keeps(*part.kind)) return part.kind;
  return nullptr;
}

bool any_part(const Config& c, int layer, bool (*keeps)(const PartKind&)) {
  return std::ranges::any_of(parts_of(c, layer), [&](const PartKind* kind) { return keeps(*kind); });
}

}  // namespace

std::span<const PartKind* const> all_kinds() { return kKinds; }

int arch_period(const Arch& arch) {
  return static_cast<int>(std::ranges::count(std::string_view(arch.layers), ' ')) + 1;
}

bool arch_has(const Arch& arch, const PartKind& kind) {
  for (int layer = 0; layer < arch_period(arch); ++layer)
    if (std::ranges::count(arch_parts(arch, layer, false), &kind, &LayerPart::kind) > 0) return true;
  return false;
}

std::vector<LayerPart> arch_parts(const Arch& arch, int layer, bool has_experts) {
  std::string_view rest = arch.layers, names;
  for (int i = layer % arch_period(arch); i >= 0; --i) {
    names = take(rest, " ");
    if (!rest.empty()) rest.remove_prefix(1);
  }
  std::vector<LayerPart> parts;
  if (names.empty()) return parts;
  for (bool beside = false;;) {
    parts.push_back({&kind_named(arch, take(names, "/+"), has_experts), beside});
    if (names.empty()) return parts;
    beside = names.front() == '+';
    names.remove_prefix(1);
  }
}

const PartKind* kv_mixer(const Arch& arch) { return first_mixer(arch, has_kv); }
const PartKind* state_mixer(const Arch& arch) { return first_mixer(arch, has_states); }

void set_mixer(LayerConfig& layer, const PartKind& kind) {
  const auto mixer = std::ranges::find_if(layer.parts, [](const LayerPart& part) { return part.kind->is_mixer; });
  if (mixer != layer.parts.end()) mixer->kind = &kind;
}

bool has_experts(const LayerConfig& layer) { return layer.has(kExpertsPart) || layer.has(kDenseExpertsPart); }

void set_experts(LayerConfig& layer, const Arch& arch) {
  if (has_experts(layer)) return;  // beside a feed-forward
  const auto plain = std::ranges::find(layer.parts, &kFeedForwardPart, &LayerPart::kind);
  if (plain != layer.parts.end()) plain->kind = &experts_kind(arch);
}

LayerConfig Config::layer(int i) const {
  LayerConfig own = layers.empty() ? LayerConfig{.window = sliding_window} : layers[static_cast<size_t>(i)];
  if (own.parts.empty()) own.parts = arch_parts(*arch, i, experts.n > 0);
  return own;
}

LayerSizes::LayerSizes(const Config& config, int layer) : model_(config) {
  if (config.layers.empty()) return;
  const LayerConfig& own = config.layers[static_cast<size_t>(layer)];
  if (!own.heads && own.ffn_dim == 0) return;
  own_ = config;
  if (own.heads)
    own_->n_heads = own.heads->n_heads, own_->n_kv_heads = own.heads->n_kv_heads, own_->head_dim = own.heads->head_dim;
  if (own.ffn_dim > 0) own_->ffn_dim = own.ffn_dim;
  if (own.share) own_->share = own.share;
}

std::vector<PlacedKind> placed_parts(const Config& c, int layer) {
  std::vector<PlacedKind> placed;
  for (const LayerPart& part : c.layer(layer).parts)
    placed.push_back({part.kind, placed.empty() ? 0 : placed.back().part + !part.beside, part.beside});
  return placed;
}

std::vector<const PartKind*> parts_of(const Config& c, int layer) {
  std::vector<const PartKind*> kinds;
  for (const LayerPart& part : c.layer(layer).parts) kinds.push_back(part.kind);
  return kinds;
}

std::vector<Block> make_layer(const Config& c, int layer) {
  std::vector<Block> blocks;
  const LayerSizes sizes(c, layer);
  for (const PartKind* kind : parts_of(c, layer)) blocks.push_back(kind->make(sizes, layer));
  return blocks;
}

bool uses(const Config& c, const PartKind& kind) {
  for (int layer = 0; layer < c.n_layers; ++layer)
    if (c.layer(layer).has(kind)) return true;
  return false;
}

bool writes_kv(const Config& c, int layer, const PartKind& kind) {
  return kind.keeps_kv && c.layer(layer).kv_layer < 0;
}
bool keeps_states(const Config& c, int layer) { return any_part(c, layer, has_states); }

bool values_are_keys(const Config& c) {
  const PartKind* kv = kv_mixer(*c.arch);
  return kv != nullptr && kv->values_are_keys;
}

int Config::n_recurrent_layers() const {
  int n = 0;
  for (int layer = 0; layer < n_layers; ++layer) n += keeps_states(*this, layer);
  return n;
}

}  // namespace ingot
