#include "model/program/decoder_program.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>

#include "backend/blocks/altup.h"
#include "backend/blocks/deepstack.h"
#include "backend/blocks/fork.h"
#include "backend/blocks/keep.h"
#include "backend/blocks/layer_inputs.h"
#include "backend/blocks/plain_layers.h"
#include "backend/blocks/remote.h"
#include "backend/blocks/shared_transformer.h"
#include "base/error.h"
#include "model/config/altup.h"
#include "model/config/layer_inputs.h"
#include "model/config/shards.h"
#include "model/files/draft_config.h"
#include "model/layers/rwkv7.h"
#include "model/layers/shared_transformer.h"
#include "model/program/kv_caches.h"

namespace ingot {
namespace {

// The divisors of the rope's frequencies: a list of the config or a tensor of the file.
std::vector<float> rope_divisors(const Config& c, const ModelWeights& w, Backend& backend, int n_ctx) {
  const bool is_long = n_ctx > c.rope_scaling.original_context;
  Tensor tensor = w.rope_divisors;
  if (c.rope_scaling.kind == RopeScalingKind::kLongRope) {
    const auto& listed = is_long ? c.rope_scaling.long_factors : c.rope_scaling.short_factors;
    if (!listed.empty()) return listed;
    tensor = is_long ? w.rope_long : w.rope_short;
  }
  std::vector<float> divisors(tensor ? static_cast<size_t>(tensor.cols) : 0);
  if (tensor) backend.download(divisors.data(), tensor);
  return divisors;
}

NormArgs norm_args(const Config& c, const Tensor& weight, const Tensor& bias) {
  return {.weight = weight, .bias = bias, .eps = c.norm_eps, .kind = c.norm()};
}

// Makes the blocks of one device, in order. The device's caches have only the layers of these blocks.
class Builder {
 public:
  Builder(const Config& config, const Weights& weights, const DecoderCaches& caches)
      : c_(config), weights_(weights), caches_(caches), numbers_(config), kinds_(kv_caches(config)) {}

  const PartNumbers& numbers() const { return numbers_; }

  // Appends the blocks of parts [first, end).
  void add(std::vector<Block>& blocks, int first, int end) {
    for (int i = first; i < end; ++i) {
      const int layer = numbers_.layer_of(i);
      if (i == 0) {
        blocks.emplace_back(embedding());
        if (c_.part<LayerInputsConfig>().width > 0) blocks.emplace_back(layer_inputs());
        if (c_.part<SharedTransformerConfig>().n_blocks > 0) blocks.emplace_back(KeepEmbeddingBlock{});
        if (n_streams() > 0)
          blocks.emplace_back(AltUpStartBlock{.n_ids = n_streams() - 1, .project = weights_.model.altup_start});
      } else if (i == numbers_.head()) {
        blocks.emplace_back(head_block(c_, weights_));
      } else if (i == numbers_.at(layer) && n_plain(layer, end) > 0) {
        const int n_layers = n_plain(layer, end);
        blocks.emplace_back(plain_layers(layer, n_layers));
        i += 2 * n_layers - 1;
      } else {
        add_part(blocks, layer, i - numbers_.at(layer));
        if (n_streams() > 0 && i + 1 == numbers_.head())
          blocks.emplace_back(AltUpEndBlock{.n_ids = n_streams() - 1, .project = weights_.model.altup_end});
        const bool ends_layer = i + 1 == numbers_.at(layer + 1);
        if (ends_layer && layer < c_.n_deepstack)
          blocks.emplace_back(DeepstackBlock{.part = layer + 1, .n_parts = 1 + c_.n_deepstack});
      }
    }
  }

 private:
  int n_streams() const { return c_.part<AltUpConfig>().n_streams; }

  EmbedBlock embedding() const {
    const ModelWeights& m = weights_.model;
    EmbedBlock b{
        .table = m.embedding,
        .scale = c_.embedding_scale,
        .n_embedding_parts = 1 + c_.n_deepstack,
        .norm = norm_args(c_, m.embed_norm, m.embed_norm_bias),
        .normalizes = c_.arch->normalizes_embedding};
    if (m.positions) b.positions = m.positions.slice_rows(c_.first_position, m.positions.rows - c_.first_position);
    if (m.token_types.rows > 1) b.second_type = m.token_types.slice_rows(1, 1);
    return b;
  }

  // Both scales of the table and the projection are constants of the family.
  LayerInputsBlock layer_inputs() const {
    const ModelWeights& m = weights_.model;
    const int width = c_.part<LayerInputsConfig>().width;
    return {.width = width,
            .n_layers = c_.n_layers,
            .table = m.layer_table,
            .project = m.layer_project,
            .norm = norm_args(c_, m.layer_norm, {}),
            .table_scale = std::sqrt(static_cast<float>(width)),
            .project_scale = 1.0f / std::sqrt(static_cast<float>(c_.dim)),
            .scale = std::sqrt(0.5f)};
  }

  // The blocks of a part. If the part has several, all of them read the stream as it was before the first.
  void add_part(std::vector<Block>& blocks, int layer, int part) {
    const std::vector<PlacedKind> placed = placed_parts(c_, layer);
    for (size_t i = 0; i < placed.size(); ++i) {
      if (placed[i].part != part) continue;
      const bool has_more = i + 1 < placed.size() && placed[i + 1].beside;
      if (has_more && !placed[i].beside) blocks.emplace_back(ForkBlock{});
      blocks.push_back(block_of(layer, i));
      if (!placed[i].beside) continue;
      const BlockPorts ports = blocks.back().ports();
      CHECK(ports.beside != nullptr);
      *ports.beside = true;
    }
  }

  // The block of a layer's kind, in this program's caches. Bidirectional models read a whole text in one step. Only the
  // running layer needs its keys and values, so all layers share the pages of one.
  Block block_of(int layer, size_t i) {
    const auto l = static_cast<size_t>(layer);
    Block block =
        weights_.layers.empty() ? parts_of(c_, layer)[i]->make(LayerSizes(c_, layer), layer) : weights_.layers[l][i];
    const BlockPorts ports = block.ports();
    if (ports.kv != nullptr) {
      const auto cache = static_cast<size_t>(kv_cache_of(c_, kinds_, layer, *parts_of(c_, layer)[i]));
      *ports.kv = caches_.kv.empty() ? nullptr : caches_.kv[cache];
      ports.attention->layer = kv_layer(layer, cache);
    }
    if (ports.states != nullptr) {
      *ports.states = caches_.states, *ports.first_state = n_states_;
      n_states_ += static_cast<int>(parts_of(c_, layer)[i]->states(c_).size());
    }
    return block;
  }

  // The index in the KV cache of the keys that the next attention of the layer reads.
  int kv_layer(int layer, size_t cache) {
    if (c_.bidirectional) return 0;
    const int earlier = c_.layer(layer).kv_layer;
    if (earlier < 0) return kv_layers_[layer] = n_kv_layers_[cache]++;
    const auto known = kv_layers_.find(earlier);
    if (known == kv_layers_.end())
      throw Error("layer {} reads the keys and values of layer {}: both must be on one device", layer, earlier);
    return known->second;
  }

  // How many layers from `first` on may be one block: layers of the same two plain parts that end before `end`. With
  // several ranks there are none, because sums over the ranks run between kernels.
  int n_plain(int first, int end) const {
    const auto placed = placed_parts(c_, first);
    const bool is_plain = placed.size() == 2 && numbers_.n_of(first) == 2 && placed[0].kind->is_mixer &&
                          placed[0].kind->is_plain && placed[1].kind->is_plain;
    if (!is_plain || first < c_.n_deepstack || c_.share || c_.arch->encoder || c_.n_recurrent_layers() > 0) return 0;
    int n = 0;
    for (int layer = first; layer < c_.n_layers && numbers_.at(layer + 1) <= end; ++layer, ++n)
      if (placed_parts(c_, layer) != placed || c_.layer(layer).kv_layer >= 0 || cache_of(layer) != cache_of(first))
        break;
    return n;
  }

  // Of a layer that begins with a mixer.
  int cache_of(int layer) const { return kv_cache_of(c_, kinds_, layer, *placed_parts(c_, layer)[0].kind); }

  PlainLayersBlock plain_layers(int first, int n) {
    PlainLayersBlock layers;
    for (int layer = first; layer < first + n; ++layer)
      for (const size_t i : {0, 1}) layers.blocks.push_back(block_of(layer, i));
    return layers;
  }

  const Config& c_;
  const Weights& weights_;
  const DecoderCaches caches_;
  const PartNumbers numbers_;
  const std::vector<KvCacheKind> kinds_;
  std::array<int, kMaxTables> n_kv_layers_{};  // so far, of each cache
  int n_states_ = 0;                           // so far
  std::map<int, int> kv_layers_;               // of the layers so far: the last index in the KV cache
};

void add_ropes(Program& program, const Config& c, const Weights& weights, Backend* backend, int n_ctx) {
  std::vector<float> divisors;
  if (backend != nullptr) divisors = rope_divisors(c, weights.model, *backend, n_ctx);
  program.ropes.push_back({.rot_dim = c.rot_dim, .axes = c.rope_axes, .magnitude = c.rope_scaling.magnitude});
  if (backend != nullptr)
    program.ropes[kMainRope].frequencies = rope_frequencies(c.rot_dim, c.rope_theta, c.rope_scaling, divisors, n_ctx);
  if (c.local_theta == 0) return;
  const int rot_dim = c.local_rot_dim > 0 ? c.local_rot_dim : c.rot_dim;
  program.ropes.push_back({.rot_dim = rot_dim, .frequencies = rope_frequencies(rot_dim, c.local_theta, {}, {}, n_ctx)});
}

// A list without blocks. Attention needs ropes.
Program empty_program(const Config& c, const Weights& weights, Backend* backend, int n_ctx, const OwnParts& part) {
  Program program;
  program.dim = c.dim;
  program.source_dim = c.source_dim;
  program.layer_input_dim = c.n_layers * c.part<LayerInputsConfig>().width;
  const bool has_one = c.part<Rwkv7Config>().head_dim > 0 || c.part<SharedTransformerConfig>().n_blocks > 0;
  program.streams_dim = has_one ? c.dim : std::max(c.part<AltUpConfig>().n_streams - 1, 0) * c.dim;
  if (n_layers_of(kv_shapes(c, part, 1, {})) == 0 || c.arch->learned_positions) return program;
  add_ropes(program, c, weights, backend, n_ctx);
  return program;
}

// With several ranks, the sum at the end of a block may compute the norm of the next block.
void move_norms_to_sums(std::span<Block> blocks) {
  NormArgs* next_norm = nullptr;
  for (Block& block : blocks) {
    if (const BlockPorts ports = block.ports(); ports.follows_sum != nullptr) {
      *ports.follows_sum = next_norm != nullptr && ports.norm->weight && !(ports.beside != nullptr && *ports.beside);
      if (*ports.follows_sum) *next_norm = *ports.norm;
    }
    next_norm = block.norm_after_sum();
  }
}

// Appends the blocks of parts [first, end). An EAGLE-3 head reads the stream behind some of the layers.
void add_blocks(Program& program, Builder& builder, const Config& c, int first, int end) {
  const size_t n_before = program.blocks.size();
  if (c.draft_head && c.draft_head->is_eagle) {
    for (const int n_layers : c.draft_head->kept_layers) {
      const int next = builder.numbers().at(n_layers);
      if (next <= first || next > end) continue;
      builder.add(program.blocks, first, next);
      program.blocks.emplace_back(KeepBlock{.place = program.n_kept++});
      first = next;
    }
  }
  builder.add(program.blocks, first, end);
  move_norms_to_sums(std::span(program.blocks).subspan(n_before));
}

}  // namespace

Program decoder_layers(const Config& c, const Weights& weights, const DecoderCaches& caches, Backend* backend,
                       int n_ctx) {
  Program program = empty_program(c, weights, backend, n_ctx, {});
  Builder builder(c, weights, caches);
  add_blocks(program, builder, c, 0, builder.numbers().head());
  return program;
}

DevicePart device_part(const Config& c, const Weights& weights, const DecoderCaches& caches, Backend* backend,
                       int n_ctx, const Split& split, int device) {
  DevicePart part{.program = empty_program(c, weights, backend, n_ctx, split.part(device)), .runs = {}};
  std::vector<Block>& blocks = part.program.blocks;
  const auto n_blocks = [&] { return static_cast<int>(blocks.size()); };
  Builder builder(c, weights, caches);
  bool was_own = true;
  for (const Split::Run& run : split.runs()) {
    const bool is_own = run.device == device;
    const int first = n_blocks();
    if (is_own) add_blocks(part.program, builder, c, run.first, run.end);
    if (is_own) part.runs.push_back({first, n_blocks()});
    if (!is_own && was_own && device == split.head()) blocks.emplace_back(RemoteBlock{.reads_x = run.first > 0});
    was_own = is_own;
  }
  return part;
}

NormArgs final_norm(const Config& c, const Weights& weights) {
  return norm_args(c, weights.model.final_norm, weights.model.final_norm_bias);
}

HeadBlock head_block(const Config& c, const Weights& weights) {
  return {.norm = final_norm(c, weights),
          .output = weights.model.output,
          .bias = weights.model.output_bias,
          .scale = c.logit_scale,
          .softcap = c.logit_softcap,
          .n_vocab = c.n_vocab,
          .n_ranks = c.share ? c.share->n_ranks : 1,
          .rank_vocab = c.share ? c.share->rank_vocab : 0};
}

StateShape state_shape(const Config& c, int n_slots, const OwnParts& part) {
  StateShape shape{.n_slots = n_slots, .buffers = {}};
  for (int layer = 0; layer < c.n_layers; ++layer)
    for (const PlacedKind& placed : placed_parts(c, layer)) {
      if (!part.layer(layer, placed.part) || placed.kind->states == nullptr) continue;
      const std::vector<StateBuffer> own = placed.kind->states(c);
      shape.buffers.insert(shape.buffers.end(), own.begin(), own.end());
    }
  return shape ? shape : StateShape{};
}

}  // namespace ingot
