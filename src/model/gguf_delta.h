// Gated delta nets as GGUF files have them, where Hugging Face directories have them otherwise: the order of value
// heads, and the projections of qwen3_next, which lie in groups. Used by gguf_export.cc.
#pragma once
#include <vector>

#include "model/gguf_export.h"

namespace ingot {

// Where the architecture's files tile value heads (Arch::tiles_value_heads), sets the order of a tensor that has such
// heads.
void order_value_heads(const Config& config, int layer, ExportTensor& tensor);

// The tensor of a layer's groups, each q, k, values and gates of one key head, as attn_qkv and attn_gate.
std::vector<ExportTensor> split_groups(const Config& config, int layer, const ExportTensor& all);

}  // namespace ingot
