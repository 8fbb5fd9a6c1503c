// Converts gated delta nets from the layout of Hugging Face directories to that of GGUF files: the order of the value
// heads, and the grouped projections of qwen3_next. Used by gguf_export.cc.
#pragma once
#include <vector>

#include "model/gguf_export.h"

namespace ingot {

// If the architecture's GGUF files tile value heads (Arch::tiles_value_heads), sets the row or column order of a tensor
// that has value heads.
void order_value_heads(const Config& config, int layer, ExportTensor& tensor);

// Splits the grouped tensor `all`, where each key head has its q, k, values and gates, into attn_qkv and attn_gate.
std::vector<ExportTensor> split_groups(const Config& config, int layer, const ExportTensor& all);

}  // namespace ingot
