#include "model/vision/tower.h"

#include <cmath>

#include "backend/blocks/attention.h"
#include "backend/blocks/feed_forward.h"
#include "backend/blocks/merge.h"
#include "backend/blocks/patches.h"
#include "base/error.h"
#include "base/memory_error.h"
#include "base/system.h"
#include "model/vision/names.h"
#include "model/vision/tower_tensors.h"

namespace ingot {
namespace {

constexpr int kTowerBlockSize = 16;  // tokens of a KV block
constexpr TowerLayerNames kGgufLayer = {
    "v.blk.{}.ln1",    "v.blk.{}.ln2",      "v.blk.{}.attn_q",   "v.blk.{}.attn_k", "v.blk.{}.attn_v",
    "v.blk.{}.attn_qkv", "v.blk.{}.attn_out", "v.blk.{}.ffn_gate", "v.blk.{}.ffn_up", "v.blk.{}.ffn_down"};

}  // namespace

std::vector<int> patch_order(int rows, int columns, int merge) {
  std::vector<int> order;
  for (int row = 0; row < rows; row += merge)
    for (int column = 0; column < columns; column += merge)
      for (int y = 0; y < merge; ++y)
        for (int x = 0; x < merge; ++x) order.push_back((row + y) * columns + column + x);
  return order;
}

struct Tower::Parts {
  std::unique_ptr<Backend> backend;
  PatchesBlock patches;
  std::vector<AttentionBlock> attention;  // [n_layers]
  std::vector<FeedForwardBlock> feed_forward;
  MergeBlock merge;
  std::vector<std::shared_ptr<std::vector<float>>> kept;
  std::unique_ptr<KvCache> kv;
  Program program;
  int max_patches = 0;
};

namespace {

// Fills the blocks of a tower with its tensors.
class TowerLoader {
 public:
  TowerLoader(const TowerConfig& config, WeightSource& source, Backend& backend)
      : c_(config), is_gguf_(source.dialect() == Dialect::kGguf), source_(source), tensors_(source, backend) {
    if (!is_gguf_) find_prefix();
  }

  PatchesBlock patches() {
    PatchesBlock b;
    const std::string name = is_gguf_ ? "v.patch_embd" : prefix_ + c_.family->hf_patches;
    b.w = tensors_.convolution(name + ".weight", c_.dim, c_.patch_dim(), c_.patch);
    b.bias = tensors_.vector(name + ".bias", c_.dim, true);
    const std::string table = is_gguf_ ? "v.position_embd" : prefix_ + c_.family->hf_positions;
    b.positions = positions(tensors_.numbers(table + ".weight", int64_t{c_.side} * c_.side, c_.dim));
    return b;
  }

  AttentionBlock attention(int layer) {
    const TowerLayerNames& names = layer_names();
    AttentionBlock b;
    b.norm = norm(name_of(names.norm1, layer), c_.dim);
    const std::string fused = name_of(names.qkv, layer);
    const bool is_fused = *names.qkv != 0 && tensors_.has(fused + ".weight");
    const std::string parts[] = {name_of(names.q, layer), name_of(names.k, layer), name_of(names.v, layer)};
    Weight* weights[] = {&b.wq, &b.wk, &b.wv};
    Tensor* biases[] = {&b.bq, &b.bk, &b.bv};
    const std::vector<float> fused_bias =
        is_fused ? tensors_.numbers(fused + ".bias", 1, int64_t{3} * c_.dim, true) : std::vector<float>{};
    for (int i = 0; i < 3; ++i) {
      if (!is_fused) {
        *weights[i] = tensors_.matrix(parts[i] + ".weight", c_.dim, c_.dim);
        *biases[i] = tensors_.vector(parts[i] + ".bias", c_.dim, true);
        continue;
      }
      *weights[i] =
          tensors_.rows_of(fused + ".weight", int64_t{3} * c_.dim, int64_t{i} * c_.dim, c_.dim, c_.dim);
      if (!fused_bias.empty())
        *biases[i] = tensors_.upload({fused_bias.begin() + i * c_.dim, fused_bias.begin() + (i + 1) * c_.dim}, 1,
                                     c_.dim);
    }
    const std::string out = name_of(names.o, layer);
    b.wo = tensors_.matrix(out + ".weight", c_.dim, c_.dim);
    b.bo = tensors_.vector(out + ".bias", c_.dim, true);
    b.attention = {.n_heads = c_.n_heads,
                   .n_kv_heads = c_.n_heads,
                   .head_dim = c_.head_dim,
                   .scale = 1.0f / std::sqrt(static_cast<float>(c_.head_dim)),
                   .causal = false};
    return b;
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
    b.act = c_.act;
    b.ffn_dim = c_.ffn_dim;
    return b;
  }

  MergeBlock merge() {
    MergeBlock b;
    b.norm = norm(is_gguf_ ? "v.post_ln" : prefix_ + c_.family->hf_post_norm, c_.dim);
    b.n_merged = c_.merge * c_.merge;
    b.averages = c_.family->merges_by_mean;
    if (b.averages) {
      gemma_projector(b);
    } else {
      const std::string name =
          is_gguf_ ? "mm.model.fc.weight" : first_of("model.connector.|connector.", "modality_projection.proj.weight");
      b.w1 = tensors_.matrix(name, c_.out_dim, int64_t{c_.dim} * b.n_merged);
    }
    return b;
  }

  std::vector<std::shared_ptr<std::vector<float>>> take_kept() { return tensors_.take_kept(); }

 private:
  // The matrix is stored transposed, and directories store the norm's weight less 1.
  void gemma_projector(MergeBlock& b) {
    const std::string base = is_gguf_ ? "mm." : "model.multi_modal_projector.|multi_modal_projector.";
    const std::string matrix =
        first_of(base, is_gguf_ ? "input_projection.weight" : "mm_input_projection_weight");
    const std::string norm = first_of(base, is_gguf_ ? "soft_emb_norm.weight" : "mm_soft_emb_norm.weight");
    std::vector<float> weight = tensors_.numbers(norm, 1, c_.dim);
    if (!is_gguf_)
      for (float& value : weight) value += 1;
    b.merged_norm = {.weight = tensors_.upload(weight, 1, c_.dim), .bias = {}, .eps = c_.eps, .kind = NormKind::kRms};
    const std::vector<float> stored = tensors_.numbers(matrix, c_.dim, c_.out_dim);
    std::vector<float> turned(stored.size());
    for (int64_t i = 0; i < c_.dim; ++i)
      for (int64_t o = 0; o < c_.out_dim; ++o) turned[o * c_.dim + i] = stored[i * c_.out_dim + o];
    b.w1 = tensors_.matrix_of(turned, c_.out_dim, c_.dim);
  }

  // The first name with one of these beginnings that exists; the first of all if none does.
  std::string first_of(const std::string& beginnings, const std::string& name) const {
    const std::vector<std::string> all = split_names(beginnings);
    for (const std::string& beginning : all)
      if (tensors_.has(beginning + name)) return beginning + name;
    return all.front() + name;
  }

  void find_prefix() {
    const std::string patches = std::string(c_.family->hf_patches) + ".weight";
    const std::string found = first_of(c_.family->hf_prefixes, patches);
    prefix_ = found.substr(0, found.size() - patches.size());
  }

  const TowerLayerNames& layer_names() const { return is_gguf_ ? kGgufLayer : c_.family->hf_layer; }
  std::string name_of(const char* pattern, int layer) const {
    return (is_gguf_ ? "" : prefix_) + fmt::format(fmt::runtime(pattern), layer);
  }

  NormArgs norm(const std::string& name, int64_t n) {
    return {.weight = tensors_.vector(name + ".weight", n),
            .bias = tensors_.vector(name + ".bias", n, c_.family->norm == NormKind::kRms),
            .eps = c_.eps,
            .kind = c_.family->norm};
  }

  // The table of positions in the order of a step.
  Tensor positions(const std::vector<float>& table) {
    std::vector<float> ordered;
    for (const int patch : patch_order(c_.side, c_.side, c_.merge)) {
      const auto from = table.begin() + int64_t{patch} * c_.dim;
      ordered.insert(ordered.end(), from, from + c_.dim);
    }
    return tensors_.upload(ordered, int64_t{c_.side} * c_.side, c_.dim);
  }

  const TowerConfig& c_;
  const bool is_gguf_;
  WeightSource& source_;
  TowerTensors tensors_;
  std::string prefix_;
};

}  // namespace

Tower::Tower(const TowerConfig& config, std::unique_ptr<WeightSource> source, const BackendOptions& backend)
    : config_(config), source_(std::move(source)), parts_(std::make_unique<Parts>()) {
  parts_->backend = create_backend(backend);
  if (const size_t free = parts_->backend->available_bytes(), needed = source_->total_bytes(); needed > free)
    throw MemoryError("the vision tower's file has {}, but {} has only {} free: leave the vision tower out",
                      human_bytes(needed), backend.device, human_bytes(free));
  load(*source_);
  allocate(config_.side * config_.side);
}

Tower::~Tower() = default;

void Tower::load(WeightSource& source) {
  TowerLoader loader(config_, source, *parts_->backend);
  parts_->patches = loader.patches();
  for (int layer = 0; layer < config_.n_layers; ++layer) {
    parts_->attention.push_back(loader.attention(layer));
    parts_->feed_forward.push_back(loader.feed_forward(layer));
  }
  parts_->merge = loader.merge();
  parts_->kept = loader.take_kept();
}

// Builds the program for pictures of up to this many patches.
void Tower::allocate(int max_patches) {
  Parts& p = *parts_;
  const DType type = p.backend->act_dtype() == DType::kF32 ? DType::kF32 : DType::kF16;
  p.kv = p.backend->make_kv({.n_layers = 1,
                             .n_kv_heads = config_.n_heads,
                             .head_dim = config_.head_dim,
                             .block_size = kTowerBlockSize,
                             .n_blocks = max_patches / kTowerBlockSize + 1,
                             .dtype = type});
  p.program.dim = config_.dim;
  p.program.blocks.emplace_back(p.patches);
  for (size_t layer = 0; layer < p.attention.size(); ++layer) {
    p.attention[layer].kv = p.kv.get();
    p.program.blocks.emplace_back(p.attention[layer]);
    p.program.blocks.emplace_back(p.feed_forward[layer]);
  }
  p.program.blocks.emplace_back(p.merge);
  p.program.allocate(*p.backend, {.max_tokens = max_patches, .max_seqs = 1, .max_kv_len = max_patches});
  p.max_patches = max_patches;
}

// [n_patches, 3 * patch * patch]: channels, then rows, then columns of each patch.
std::vector<float> Tower::patches_of(const ImageTile& tile) const {
  const int patch = config_.patch, rows = tile.height / patch, columns = tile.width / patch;
  std::vector<float> patches(static_cast<size_t>(rows) * columns * config_.patch_dim());
  float* to = patches.data();
  for (const int place : patch_order(rows, columns, config_.merge)) {
    const int64_t top = int64_t{place / columns} * patch, left = int64_t{place % columns} * patch;
    for (int channel = 0; channel < 3; ++channel)
      for (int y = 0; y < patch; ++y) {
        const float* from = tile.pixels.data() + (int64_t{channel} * tile.height + top + y) * tile.width + left;
        to = std::copy(from, from + patch, to);
      }
  }
  return patches;
}

std::vector<float> Tower::encode(const ImageTile& tile) {
  Parts& p = *parts_;
  const int n = tile.height / config_.patch * (tile.width / config_.patch);
  CHECK(n > 0 && n <= p.max_patches);
  const std::vector<float> patches = patches_of(tile);
  std::vector<int32_t> tokens(static_cast<size_t>(n)), positions(tokens), blocks;
  for (int i = 0; i < n; ++i) positions[static_cast<size_t>(i)] = i;
  for (int i = 0; i * kTowerBlockSize < n; ++i) blocks.push_back(i);
  const std::vector<int32_t> starts = {0, n}, lengths = {n};
  p.backend->run(p.program, {.tokens = tokens,
                             .positions = positions,
                             .q_start = starts,
                             .kv_len = lengths,
                             .block_table = blocks,
                             .max_blocks = static_cast<int>(blocks.size()),
                             .logit_rows = {},
                             .embeddings = patches});
  const Tensor out = p.program.blocks.back().get<MergeBlock>().out.slice_rows(0, n / p.merge.n_merged);
  std::vector<float> rows(static_cast<size_t>(out.rows * out.cols));
  p.backend->download(rows.data(), out);
  return rows;
}

}  // namespace ingot
