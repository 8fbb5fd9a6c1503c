// The layers of hybrid models in GGUF files: attention.head_count_kv lists 0 for the layers without attention.
#pragma once
#include "model/config/gguf_reader.h"
#include "model/config/kind.h"

namespace ingot {

// Gives each layer its mixer: `kind` where the list has no heads, and the kind that keeps keys elsewhere, or if there is
// no list. Layers of one part (config.cc), and layers that have both, are left as they are.
inline void mark_layers_without_kv_heads(const GgufKeys& keys, Config& c, const PartKind& kind) {
  if (c.arch->one_part) return;
  for (const LayerPart& part : arch_parts(*c.arch, 0, false))
    if (part.beside && part.kind->is_mixer) return;
  const char* kHeads = "attention.head_count_kv";
  const Value* heads = keys.metadata().find(keys.name(kHeads));
  const bool is_list = heads != nullptr && heads->is_array();
  const auto listed = is_list ? keys.metadata().find_u32_per_layer(keys.name(kHeads), c.layers.size()) : std::nullopt;
  for (size_t i = 0; i < c.layers.size(); ++i)
    set_mixer(c.layers[i], listed && (*listed)[i] == 0 ? kind : *kv_mixer(*c.arch));
}

}  // namespace ingot
