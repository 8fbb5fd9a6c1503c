#include "model/layers/kind.h"

#include <algorithm>

namespace ingot {
namespace {

constexpr const PartKind* kKinds[] = {&kAttentionPart, &kLatentAttentionPart, &kDeltaNetPart, &kFeedForwardPart,
                                      &kExpertsPart};

}  // namespace

std::span<const PartKind* const> all_kinds() { return kKinds; }

std::vector<const PartKind*> parts_of(const Config& c, int layer) {
  const LayerKind kind = c.layer(layer);
  const PartKind* mixer = kind.recurrent              ? &kDeltaNetPart
                          : c.arch->latent_attention ? &kLatentAttentionPart
                                                      : &kAttentionPart;
  return {mixer, kind.experts ? &kExpertsPart : &kFeedForwardPart};
}

std::vector<Block> make_layer(const Config& c, int layer) {
  std::vector<Block> blocks;
  for (const PartKind* kind : parts_of(c, layer)) blocks.push_back(kind->make(c, layer));
  return blocks;
}

bool uses(const Config& c, const PartKind& kind) {
  for (int layer = 0; layer < c.n_layers; ++layer)
    if (std::ranges::count(parts_of(c, layer), &kind) > 0) return true;
  return false;
}

}  // namespace ingot
