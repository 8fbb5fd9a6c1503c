#include "model/gguf_delta.h"

#include "base/error.h"

namespace ingot {
namespace {

// The source index of each element: the first `first` elements stay in place; then value heads of `dim` elements each,
// reordered so that the heads of one key head are no longer neighbours.
std::vector<int32_t> tiled_order(const DeltaConfig& d, int first, int dim) {
  const int n_shared = d.n_value_heads / d.n_key_heads;
  std::vector<int32_t> order;
  for (int32_t i = 0; i < first; ++i) order.push_back(i);
  for (int head = 0; head < d.n_value_heads; ++head) {
    const int stored = head % d.n_key_heads * n_shared + head / d.n_key_heads;
    for (int i = 0; i < dim; ++i) order.push_back(first + stored * dim + i);
  }
  return order;
}

}  // namespace

void order_value_heads(const Config& c, int layer, ExportTensor& tensor) {
  const DeltaConfig& d = c.delta;
  if (!c.arch->tiles_value_heads || !c.layer(layer).recurrent || d.n_key_heads == d.n_value_heads) return;
  const std::string prefix = fmt::format("blk.{}.", layer),
                    name = tensor.name.starts_with(prefix) ? tensor.name.substr(prefix.size()) : "";
  if (name == "attn_qkv.weight" || name == "ssm_conv1d.weight")
    tensor.row_order = tiled_order(d, 2 * d.all_keys(), d.value_dim);
  if (name == "attn_gate.weight") tensor.row_order = tiled_order(d, 0, d.value_dim);
  if (name == "ssm_beta.weight" || name == "ssm_alpha.weight" || name == "ssm_a" || name == "ssm_dt.bias")
    tensor.row_order = tiled_order(d, 0, 1);
  if (name == "ssm_out.weight") tensor.column_order = tiled_order(d, 0, d.value_dim);
}

std::vector<ExportTensor> split_groups(const Config& c, int layer, const ExportTensor& all) {
  const DeltaConfig& d = c.delta;
  const int values = d.all_values() / d.n_key_heads, group = 2 * (d.key_dim + values);
  std::vector<int32_t> qkv, gate;
  const auto take = [&](std::vector<int32_t>& order, int first, int n) {
    for (int g = 0; g < d.n_key_heads; ++g)
      for (int i = 0; i < n; ++i) order.push_back(g * group + first + i);
  };
  take(qkv, 0, d.key_dim);
  take(qkv, d.key_dim, d.key_dim);
  take(qkv, 2 * d.key_dim, values);
  take(gate, 2 * d.key_dim + values, values);
  std::vector<ExportTensor> parts(2, all);
  for (const auto& [i, name, order] : {std::tuple{0, "attn_qkv", qkv}, std::tuple{1, "attn_gate", gate}}) {
    parts[i].name = fmt::format("blk.{}.{}.weight", layer, name);
    parts[i].row_order = order;
    parts[i].shape[1] = order.size();
    parts[i].n_bytes = all.n_bytes * order.size() / static_cast<size_t>(group * d.n_key_heads);
  }
  return parts;
}

}  // namespace ingot
