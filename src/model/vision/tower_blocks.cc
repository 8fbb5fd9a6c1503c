#include "model/vision/tower_blocks.h"

#include <cmath>

#include "base/error.h"
#include "model/files/placed_tensors.h"
#include "model/vision/names.h"

namespace ingot {
namespace {

constexpr TowerLayerNames kGgufLayer = {"v.blk.{}.ln1",
                                        "v.blk.{}.ln2",
                                        "v.blk.{}.attn_q",
                                        "v.blk.{}.attn_k",
                                        "v.blk.{}.attn_v",
                                        "v.blk.{}.attn_qkv",
                                        "v.blk.{}.attn_out",
                                        "v.blk.{}.ffn_gate",
                                        "v.blk.{}.ffn_up",
                                        "v.blk.{}.ffn_down",
                                        "v.blk.{}.attn_q_norm",
                                        "v.blk.{}.attn_k_norm",
                                        "v.blk.{}.attn_post_norm",
                                        "v.blk.{}.ffn_post_norm"};

// Fills the blocks of a tower with its tensors.
class TowerLoader {
 public:
  TowerLoader(const TowerConfig& config, WeightSource& source, Backend& backend)
      : c_(config),
        family_(*config.family),
        is_gguf_(source.dialect() == Dialect::kGguf),
        source_(source),
        tensors_(source, backend, "the vision tower") {
    if (!is_gguf_) find_prefix();
    // Gemma 4 has norms of heads, whose means are of the true size.
    blocks_.head_dim = family_.is_gemma4 ? c_.head_dim : backend.fast_head_dim(c_.head_dim);
  }

  TowerBlocks load() {
    load_patches();
    for (int layer = 0; layer < c_.n_layers; ++layer) {
      if (c_.clips) {
        clipped_layer(layer);
        continue;
      }
      blocks_.attention.push_back(attention(layer));
      blocks_.feed_forward.push_back(feed_forward(layer));
    }
    blocks_.merge.n_merged = c_.merge * c_.merge;
    switch (family_.projector) {
      case Projector::kLinear: linear_projector(blocks_.merge); break;
      case Projector::kGemma: gemma_projector(blocks_.merge); break;
      case Projector::kGemma4: gemma4_projector(blocks_.merge); break;
      case Projector::kQwen: qwen_projector(blocks_.merge); break;
    }
    for (size_t i = 0; i < c_.deepstack_layers.size(); ++i) blocks_.deepstack.push_back(deepstack(static_cast<int>(i)));
    blocks_.kept = tensors_.take_kept();
    return std::move(blocks_);
  }

 private:
  void load_patches() {
    PatchesBlock& b = blocks_.patches;
    b.patch = c_.patch;
    const std::string name = is_gguf_ ? "v.patch_embd" : prefix_ + family_.hf_patches;
    if (family_.is_gemma4) return load_gemma4_patches(name);
    if (family_.n_frames == 1) {
      b.w = tensors_.convolution(name + ".weight", c_.dim, c_.patch_dim(), c_.patch);
    } else {
      b.w = tensors_.matrix_of(of_both_frames(name), c_.dim, c_.patch_dim());
    }
    b.bias = tensors_.vector(name + ".bias", c_.dim, true);
    if (*family_.hf_positions == 0) return;
    const std::string table = is_gguf_ ? "v.position_embd" : prefix_ + family_.hf_positions;
    std::vector<float> positions = tensors_.numbers(table + ".weight", int64_t{c_.side} * c_.side, c_.dim);
    if (c_.is_dynamic()) {
      b.table = tensors_.upload(positions, int64_t{c_.side} * c_.side, c_.dim);
      b.n_mixed = 4;
    } else {
      b.positions = in_order_of_step(positions);
    }
  }

  // Directories store the colours of a pixel side by side. There is a table for columns, and one for rows.
  void load_gemma4_patches(const std::string& name) {
    PatchesBlock& b = blocks_.patches;
    if (is_gguf_) {
      b.w = tensors_.convolution(name + ".weight", c_.dim, c_.patch_dim(), c_.patch);
    } else {
      const std::vector<float> stored = tensors_.numbers(name + ".weight", c_.dim, c_.patch_dim());
      std::vector<float> ordered(stored.size());
      const int64_t n = int64_t{c_.patch} * c_.patch;
      for (int64_t row = 0; row < c_.dim; ++row)
        for (int64_t pixel = 0; pixel < n; ++pixel)
          for (int64_t colour = 0; colour < 3; ++colour)
            ordered[(row * 3 + colour) * n + pixel] = stored[(row * n + pixel) * 3 + colour];
      b.w = tensors_.matrix_of(ordered, c_.dim, c_.patch_dim());
    }
    const std::string table = is_gguf_ ? "v.position_embd.weight" : prefix_ + family_.hf_positions;
    b.table = tensors_.upload(tensors_.numbers(table, 2 * int64_t{c_.side}, c_.dim), 2 * int64_t{c_.side}, c_.dim);
    b.n_mixed = 2;
  }

  // An image is two equal frames, so a patch needs only the sum of the weights of both. GGUF files have a tensor for
  // each frame.
  std::vector<float> of_both_frames(const std::string& name) {
    const int64_t n = c_.patch_dim(), pixels = int64_t{c_.patch} * c_.patch;
    if (is_gguf_) {
      std::vector<float> sum = tensors_.convolution_numbers(name + ".weight", c_.dim, n, c_.patch);
      const std::vector<float> second = tensors_.convolution_numbers(name + ".weight.1", c_.dim, n, c_.patch);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += second[i];
      return sum;
    }
    const std::vector<float> both = tensors_.convolution_numbers(name + ".weight", c_.dim, 2 * n, c_.patch);
    std::vector<float> sum;
    for (int64_t channel = 0; channel < 3 * int64_t{c_.dim}; ++channel)
      for (int64_t i = 0; i < pixels; ++i)
        sum.push_back(both[2 * channel * pixels + i] + both[(2 * channel + 1) * pixels + i]);
    return sum;
  }

  AttentionBlock attention(int layer) {
    const TowerLayerNames& names = layer_names();
    AttentionBlock b;
    b.norm = norm(name_of(names.norm1, layer), c_.dim);
    load_qkv(b, names, layer);
    const std::string out = name_of(names.o, layer);
    b.wo = blocks_.head_dim == c_.head_dim ? tensors_.matrix(out + ".weight", c_.dim, c_.q_dim())
                                           : wider_output(out + ".weight");
    b.bo = tensors_.vector(out + ".bias", c_.dim, true);
    b.attention = {.n_heads = c_.n_heads,
                   .n_kv_heads = c_.n_kv_heads,
                   .head_dim = blocks_.head_dim,
                   .scale = 1.0f / std::sqrt(static_cast<float>(c_.head_dim)),
                   .causal = false};
    if (family_.has_rope) b.rope_table = 0;
    if (family_.is_gemma4) {
      b.attention.scale = 1;
      b.q_norm = head_norm(name_of(names.q_norm, layer)), b.k_norm = head_norm(name_of(names.k_norm, layer));
      b.norms_values = true;
      b.v_norm = {.weight = {}, .bias = {}, .eps = c_.eps, .kind = NormKind::kRms};
      b.join.has_post_norm = true;
      b.join.post_norm = norm(name_of(names.attention_norm, layer), c_.dim);
    }
    return b;
  }

  // Gemma 4 turns the first half of a head with the column, the other half with the row. Elsewhere, dimensions i and
  // i + head_dim / 2 turn together, so the quarters of a head change places: 0, 2, 1, 3.
  std::vector<int> quarters_in_order(int n_heads) const {
    std::vector<int> rows;
    const int quarter = c_.head_dim / 4;
    for (int head = 0; head < n_heads; ++head)
      for (const int from : {0, 2, 1, 3})
        for (int i = 0; i < quarter; ++i) rows.push_back(head * c_.head_dim + from * quarter + i);
    return rows;
  }

  void clipped_layer(int layer) {
    const TowerLayerNames& names = layer_names();
    ClippedAttentionBlock& a = blocks_.clipped_attention.emplace_back();
    a.norm = norm(name_of(names.norm1, layer), c_.dim);
    const std::string q = name_of(names.q, layer), k = name_of(names.k, layer);
    a.q = clipped(q, tensors_.matrix_in_order(q + ".weight", quarters_in_order(c_.n_heads), c_.dim));
    a.k = clipped(k, tensors_.matrix_in_order(k + ".weight", quarters_in_order(c_.n_kv_heads), c_.dim));
    a.v = clipped(name_of(names.v, layer), c_.kv_dim(), c_.dim);
    a.o = clipped(name_of(names.o, layer), c_.dim, c_.q_dim());
    a.q_norm = head_norm(name_of(names.q_norm, layer)), a.k_norm = head_norm(name_of(names.k_norm, layer));
    a.v_norm = {.weight = {}, .bias = {}, .eps = c_.eps, .kind = NormKind::kRms};
    a.post_norm = norm(name_of(names.attention_norm, layer), c_.dim);
    a.attention = {
        .n_heads = c_.n_heads, .n_kv_heads = c_.n_kv_heads, .head_dim = c_.head_dim, .scale = 1, .causal = false};
    ClippedFeedForwardBlock& f = blocks_.clipped_feed_forward.emplace_back();
    f.norm = norm(name_of(names.norm2, layer), c_.dim);
    f.gate = clipped(name_of(names.gate, layer), c_.ffn_dim, c_.dim);
    f.up = clipped(name_of(names.up, layer), c_.ffn_dim, c_.dim);
    f.down = clipped(name_of(names.down, layer), c_.dim, c_.ffn_dim);
    f.act = c_.act;
    f.post_norm = norm(name_of(names.ffn_norm, layer), c_.dim);
  }

  ClippedProduct clipped(const std::string& name, int64_t n_out, int64_t n_in) {
    return clipped(name, tensors_.matrix(name + ".weight", n_out, n_in));
  }
  // The limits are tensors of one number. Directories keep them beside the module with the matrix.
  ClippedProduct clipped(const std::string& name, const Weight& w) {
    constexpr std::string_view kLinear = ".linear";
    const std::string base = name.ends_with(kLinear) ? name.substr(0, name.size() - kLinear.size()) : name;
    ClippedProduct product{.w = w};
    const auto read = [&](const char* limit, float& value) {
      const std::vector<float> stored = tensors_.numbers(base + limit, 1, 1, true);
      if (!stored.empty() && !std::isnan(stored[0])) value = stored[0];
    };
    read(".input_min", product.in_low), read(".input_max", product.in_high);
    read(".output_min", product.out_low), read(".output_max", product.out_high);
    return product;
  }

  NormArgs head_norm(const std::string& name) {
    const std::vector<float> stored = tensors_.numbers(name + ".weight", 1, c_.head_dim);
    std::vector<float> ordered;
    for (const int i : quarters_in_order(1)) ordered.push_back(stored[static_cast<size_t>(i)]);
    return {.weight = tensors_.upload(ordered, 1, c_.head_dim), .bias = {}, .eps = c_.eps, .kind = NormKind::kRms};
  }

  // Heads of blocks_.head_dim rows, of which the last are zeros. values: [n * head_dim, n_in]
  std::vector<float> wider_heads(std::span<const float> values, int64_t n_in) const {
    const auto n = static_cast<size_t>(c_.head_dim * n_in), wide = static_cast<size_t>(blocks_.head_dim * n_in);
    std::vector<float> heads(values.size() / n * wide);
    for (size_t head = 0; head * n < values.size(); ++head)
      std::copy_n(values.begin() + head * n, n, heads.begin() + head * wide);
    return heads;
  }
  // The same with columns.
  Weight wider_output(const std::string& name) {
    const std::vector<float> rows = wider_heads(tensors_.numbers(name, c_.dim, c_.q_dim()), 1);
    return tensors_.matrix_of(rows, c_.dim, int64_t{c_.n_heads} * blocks_.head_dim, Format::F16);
  }

  // Three matrices, or one with the rows of all three.
  void load_qkv(AttentionBlock& b, const TowerLayerNames& names, int layer) {
    const std::string fused = name_of(names.qkv, layer);
    const bool is_fused = *names.qkv != 0 && tensors_.has(fused + ".weight");
    const int64_t dim = c_.dim;
    const char* parts[] = {names.q, names.k, names.v};
    Weight* weights[] = {&b.wq, &b.wk, &b.wv};
    Tensor* biases[] = {&b.bq, &b.bk, &b.bv};
    for (int i = 0; i < 3; ++i) {
      const std::string name = is_fused ? fused : name_of(parts[i], layer);
      const int n_heads = i == 0 ? c_.n_heads : c_.n_kv_heads;
      if (!is_fused && family_.is_gemma4 && i < 2) {
        *weights[i] = tensors_.matrix_in_order(name + ".weight", quarters_in_order(n_heads), dim);
        continue;
      }
      const int64_t n = int64_t{n_heads} * c_.head_dim, n_wide = int64_t{n_heads} * blocks_.head_dim,
                    total = is_fused ? 3 * dim : n, first = is_fused ? i * dim : 0;
      *weights[i] = n_wide == n ? tensors_.rows_of(name + ".weight", total, first, n, dim)
                                : tensors_.matrix_of(wider_heads(tensors_.numbers_of_rows(name + ".weight", total,
                                                                                          first, n, dim), dim),
                                                     n_wide, dim, Format::F16);
      const std::vector<float> bias = tensors_.numbers(name + ".bias", 1, total, true);
      if (!bias.empty()) *biases[i] = tensors_.upload(wider_heads(std::span(bias).subspan(first, n), 1), 1, n_wide);
    }
  }

  FeedForwardBlock feed_forward(int layer) {
    const TowerLayerNames& names = layer_names();
    FeedForwardBlock b;
    b.norm = norm(name_of(names.norm2, layer), c_.dim);
    std::string up = name_of(names.up, layer), down = name_of(names.down, layer);
    // Old mmproj files call the matrices by each other's name.
    HostTensor host;
    if (is_gguf_ && c_.ffn_dim != c_.dim && source_.find_shape(up + ".weight", 0, 0, host) && host.n_in == c_.ffn_dim)
      std::swap(up, down);
    const std::string gate = name_of(names.gate, layer);
    if (*names.gate != 0 && tensors_.has(gate + ".weight")) {
      b.w_gate = tensors_.matrix(gate + ".weight", c_.ffn_dim, c_.dim);
      b.b_gate = tensors_.vector(gate + ".bias", c_.ffn_dim, true);
    }
    b.w_up = tensors_.matrix(up + ".weight", c_.ffn_dim, c_.dim);
    b.b_up = tensors_.vector(up + ".bias", c_.ffn_dim, true);
    b.w_down = tensors_.matrix(down + ".weight", c_.dim, c_.ffn_dim);
    b.b_down = tensors_.vector(down + ".bias", c_.dim, true);
    if (family_.is_gemma4) {
      b.join.has_post_norm = true;
      b.join.post_norm = norm(name_of(names.ffn_norm, layer), c_.dim);
    }
    b.act = c_.act;
    b.ffn_dim = c_.ffn_dim;
    return b;
  }

  NormArgs post_norm() { return norm(is_gguf_ ? "v.post_ln" : prefix_ + family_.hf_post_norm, c_.dim); }

  void linear_projector(MergeBlock& b) {
    b.norm = post_norm();
    const std::string name =
        is_gguf_ ? "mm.model.fc.weight" : first_of("model.connector.|connector.", "modality_projection.proj.weight");
    b.w1 = tensors_.matrix(name, c_.out_dim, int64_t{c_.dim} * b.n_merged);
  }

  // The matrix is stored transposed, and directories store the norm's weight less 1.
  void gemma_projector(MergeBlock& b) {
    b.norm = post_norm();
    b.averages = true;
    const std::string base = is_gguf_ ? "mm." : "model.multi_modal_projector.|multi_modal_projector.";
    const std::string matrix = first_of(base, is_gguf_ ? "input_projection.weight" : "mm_input_projection_weight");
    std::vector<float> weight =
        tensors_.numbers(first_of(base, is_gguf_ ? "soft_emb_norm.weight" : "mm_soft_emb_norm.weight"), 1, c_.dim);
    if (!is_gguf_)
      for (float& value : weight) value += 1;
    b.merged_norm = {.weight = tensors_.upload(weight, 1, c_.dim), .bias = {}, .eps = c_.eps, .kind = NormKind::kRms};
    const std::vector<float> stored = tensors_.numbers(matrix, c_.dim, c_.out_dim);
    std::vector<float> turned(stored.size());
    for (int64_t i = 0; i < c_.dim; ++i)
      for (int64_t o = 0; o < c_.out_dim; ++o) turned[o * c_.dim + i] = stored[i * c_.out_dim + o];
    b.w1 = tensors_.matrix_of(turned, c_.out_dim, c_.dim);
  }

  void gemma4_projector(MergeBlock& b) {
    b.averages = true;
    b.scale = std::sqrt(static_cast<float>(c_.dim));
    if (c_.standardizes) {
      std::vector<float> shift = tensors_.numbers(std_name("std_bias"), 1, c_.dim);
      for (float& value : shift) value = -value;
      b.shift = tensors_.upload(shift, 1, c_.dim);
      b.factors = tensors_.upload(tensors_.numbers(std_name("std_scale"), 1, c_.dim), 1, c_.dim);
    }
    b.normalizes = true;
    b.merged_norm = {.weight = {}, .bias = {}, .eps = c_.eps, .kind = NormKind::kRms};
    b.w1 = tensors_.matrix(is_gguf_ ? "mm.input_projection.weight"
                                    : first_of("model.embed_vision.|embed_vision.", "embedding_projection.weight"),
                           c_.out_dim, c_.dim);
  }

  std::string std_name(const std::string& name) const {
    const std::string whole = is_gguf_ ? "v." + name : prefix_ + name;
    return tensors_.has(whole) ? whole : whole + ".weight";
  }

  void qwen_projector(MergeBlock& b) {
    b.norm = post_norm();
    two_matrices(b, is_gguf_ ? "mm.0" : prefix_ + family_.hf_merger1, is_gguf_ ? "mm.2" : prefix_ + family_.hf_merger2);
  }

  // The norm is of the merged rows. GGUF files number these projectors by the layers before them.
  MergeBlock deepstack(int i) {
    MergeBlock b;
    b.n_merged = c_.merge * c_.merge;
    const std::string base = is_gguf_ ? fmt::format("v.deepstack.{}.", c_.deepstack_layers[static_cast<size_t>(i)])
                                      : prefix_ + fmt::format("deepstack_merger_list.{}.", i);
    b.merged_norm = norm(base + "norm", int64_t{c_.dim} * b.n_merged);
    two_matrices(b, base + (is_gguf_ ? "fc1" : "linear_fc1"), base + (is_gguf_ ? "fc2" : "linear_fc2"));
    return b;
  }

  void two_matrices(MergeBlock& b, const std::string& first, const std::string& second) {
    const int64_t width = int64_t{c_.dim} * b.n_merged;
    b.w1 = tensors_.matrix(first + ".weight", width, width);
    b.b1 = tensors_.vector(first + ".bias", width);
    b.w2 = tensors_.matrix(second + ".weight", c_.out_dim, width);
    b.b2 = tensors_.vector(second + ".bias", c_.out_dim);
    b.act = Activation::kGelu;
  }

  // The first name with one of these beginnings that exists; the first of all if none does.
  std::string first_of(const std::string& beginnings, const std::string& name) const {
    const std::vector<std::string> all = split_names(beginnings);
    for (const std::string& beginning : all)
      if (tensors_.has(beginning + name)) return beginning + name;
    return all.front() + name;
  }

  void find_prefix() {
    const std::string patches = std::string(family_.hf_patches) + ".weight";
    const std::string found = first_of(family_.hf_prefixes, patches);
    prefix_ = found.substr(0, found.size() - patches.size());
  }

  const TowerLayerNames& layer_names() const { return is_gguf_ ? kGgufLayer : family_.hf_layer; }
  std::string name_of(const char* pattern, int layer) const {
    return (is_gguf_ ? "" : prefix_) + fmt::format(fmt::runtime(pattern), layer);
  }

  NormArgs norm(const std::string& name, int64_t n) {
    return {.weight = tensors_.vector(name + ".weight", n),
            .bias = tensors_.vector(name + ".bias", n, family_.norm == NormKind::kRms),
            .eps = c_.eps,
            .kind = family_.norm};
  }

  Tensor in_order_of_step(const std::vector<float>& table) {
    std::vector<float> ordered;
    for (const int patch : window_order(c_.side, c_.side, c_).patches) {
      const auto from = table.begin() + int64_t{patch} * c_.dim;
      ordered.insert(ordered.end(), from, from + c_.dim);
    }
    return tensors_.upload(ordered, int64_t{c_.side} * c_.side, c_.dim);
  }

  const TowerConfig& c_;
  const TowerFamily& family_;
  const bool is_gguf_;
  WeightSource& source_;
  PlacedTensors tensors_;
  std::string prefix_;
  TowerBlocks blocks_;
};

}  // namespace

TowerBlocks load_tower(const TowerConfig& config, WeightSource& source, Backend& backend) {
  return TowerLoader(config, source, backend).load();
}

}  // namespace ingot
