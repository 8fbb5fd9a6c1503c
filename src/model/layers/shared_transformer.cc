// Zamba 2's layers of attention and feed-forward whose weights several places share
// (backend/blocks/shared_transformer.h). Every rank computes all of it. GGUF files have no names for it.
#include "model/layers/shared_transformer.h"

#include <algorithm>
#include <cmath>

#include "backend/blocks/shared_transformer.h"
#include "base/error.h"
#include "io/huggingface/config.h"
#include "model/config/gguf_reader.h"
#include "model/config/gguf_writer.h"
#include "model/layers/joins.h"

namespace ingot {
extern const PartKind kSharedTransformerPart, kMamba2Part;
}
namespace ingot::shared_transformer_part {
namespace {

using B = SharedTransformerBlock;

constexpr int kMaxSharedBlocks = 1024, kMaxAdapterRank = 1 << 16;

const SharedTransformerConfig& shared(const Config& c) { return c.part<SharedTransformerConfig>(); }

// The number of a layer among those that have the part.
int number_of(const Config& c, int layer) {
  return static_cast<int>(std::ranges::find(shared(c).layers, layer) - shared(c).layers.begin());
}
// The first layer that has the layer's weights.
int holder_of(const Config& c, int layer) {
  return shared(c).layers[static_cast<size_t>(number_of(c, layer) % shared(c).n_blocks)];
}
bool holds_weights(const Config& c, int layer) { return holder_of(c, layer) == layer; }
bool has_adapters(const Config& c, int) { return shared(c).adapter_rank > 0; }
bool adapts_attention(const Config& c, int layer) { return has_adapters(c, layer) && shared(c).adapts_attention; }
TensorNames names_of_adapter(const Config& c, int layer) { return {holder_of(c, layer), number_of(c, layer)}; }

constexpr Dim kTwoDims = {[](const Config& c) -> int64_t { return 2 * int64_t{c.dim}; }};
constexpr Dim kQueries = {[](const Config& c) -> int64_t { return c.q_dim(); }};
constexpr Dim kKeys = {[](const Config& c) -> int64_t { return c.kv_dim(); }};
constexpr Dim kWidth = {[](const Config& c) -> int64_t { return c.ffn_dim; }};
constexpr Dim kTwoWidths = {[](const Config& c) -> int64_t { return 2 * int64_t{c.ffn_dim}; }};
constexpr Dim kRank = {[](const Config& c) -> int64_t { return shared(c).adapter_rank; }};

constexpr MatrixRow matrix(const char* gguf_name, const char* hf_name, Weight& (*member)(void*), const Dim& n_out,
                           const Dim& n_in) {
  return {.gguf_name = gguf_name, .hf_name = hf_name, .member = member, .n_out = n_out, .n_in = n_in,
          .when = holds_weights};
}
constexpr MatrixRow adapter(const char* gguf_name, const char* hf_name, Weight& (*member)(void*), const Dim& n_out,
                            const Dim& n_in, bool (*when)(const Config&, int)) {
  MatrixRow row = matrix(gguf_name, hf_name, member, n_out, n_in);
  row.when = when, row.hf_names = names_of_adapter;
  return row;
}

#define SHARED(name) "model.layers.{0}.shared_transformer." name
#define ADAPTER(part, number) SHARED(part "_adapter_list.{2}." number ".weight")
constexpr MatrixRow kMatrices[] = {
    matrix("blk.{}.shared_q.weight", SHARED("self_attn.q_proj.weight"), at<&B::wq>, kQueries, kTwoDims),
    matrix("blk.{}.shared_k.weight", SHARED("self_attn.k_proj.weight"), at<&B::wk>, kKeys, kTwoDims),
    matrix("blk.{}.shared_v.weight", SHARED("self_attn.v_proj.weight"), at<&B::wv>, kKeys, kTwoDims),
    matrix("blk.{}.shared_output.weight", SHARED("self_attn.o_proj.weight"), at<&B::wo>, kModelDim, kQueries),
    matrix("blk.{}.shared_gate_up.weight", SHARED("feed_forward.gate_up_proj.weight"), at<&B::w_gate_up>, kTwoWidths,
           kModelDim),
    matrix("blk.{}.shared_down.weight", SHARED("feed_forward.down_proj.weight"), at<&B::w_down>, kModelDim, kWidth),
    {.gguf_name = "blk.{}.shared_out.weight", .hf_name = "model.layers.{}.linear.weight", .member = at<&B::w_out>,
     .n_out = kModelDim, .n_in = kModelDim},
    adapter("blk.{}.shared_q_a.weight", ADAPTER("self_attn.linear_q", "0"), at<&B::more_q, &LowRank::down>, kRank,
            kTwoDims, adapts_attention),
    adapter("blk.{}.shared_q_b.weight", ADAPTER("self_attn.linear_q", "1"), at<&B::more_q, &LowRank::up>, kQueries,
            kRank, adapts_attention),
    adapter("blk.{}.shared_k_a.weight", ADAPTER("self_attn.linear_k", "0"), at<&B::more_k, &LowRank::down>, kRank,
            kTwoDims, adapts_attention),
    adapter("blk.{}.shared_k_b.weight", ADAPTER("self_attn.linear_k", "1"), at<&B::more_k, &LowRank::up>, kKeys, kRank,
            adapts_attention),
    adapter("blk.{}.shared_v_a.weight", ADAPTER("self_attn.linear_v", "0"), at<&B::more_v, &LowRank::down>, kRank,
            kTwoDims, adapts_attention),
    adapter("blk.{}.shared_v_b.weight", ADAPTER("self_attn.linear_v", "1"), at<&B::more_v, &LowRank::up>, kKeys, kRank,
            adapts_attention),
    adapter("blk.{}.shared_gate_up_a.weight", ADAPTER("feed_forward.gate_up_proj", "0"),
            at<&B::more_gate_up, &LowRank::down>, kRank, kModelDim, has_adapters),
    adapter("blk.{}.shared_gate_up_b.weight", ADAPTER("feed_forward.gate_up_proj", "1"),
            at<&B::more_gate_up, &LowRank::up>, kTwoWidths, kRank, has_adapters),
};
#undef ADAPTER

constexpr VectorRow kVectors[] = {
    {.gguf_name = "blk.{}.shared_norm.weight", .hf_name = SHARED("input_layernorm.weight"),
     .member = at<&B::norm, &NormArgs::weight>, .n = kTwoDims, .when = holds_weights},
    {.gguf_name = "blk.{}.shared_ffn_norm.weight", .hf_name = SHARED("pre_ff_layernorm.weight"),
     .member = at<&B::ffn_norm, &NormArgs::weight>, .n = kModelDim, .when = holds_weights},
};
#undef SHARED

TensorRows rows() { return {kMatrices, kVectors}; }

void read_gguf(const GgufKeys& keys, Config&) {
  throw keys.error("block_count", "GGUF files of Zamba 2 are not supported: use the model's directory");
}
void write_gguf(const Config&, const GgufKeyWriter&) {
  throw Error("GGUF has no form for layers that share weights: run the directory without converting it");
}

// Each layer has a mixer, and layers of type "hybrid" have the part before it.
void read_hf(const HfConfig& file, Config& c) {
  SharedTransformerConfig s{.n_blocks = file.integer_or("num_mem_blocks", 1, 1, kMaxSharedBlocks),
                            .adapter_rank = file.integer_or("adapter_rank", 128, 1, kMaxAdapterRank),
                            .adapts_attention = file.flag_or("use_shared_attention_adapter", false)};
  if (file.layer_types.empty()) throw file.error("layers_block_type", "is missing");
  if (!file.has("attention_head_dim")) throw file.error("attention_head_dim", "is missing");
  if (file.flag_or("add_bias_linear", false))
    throw file.error("add_bias_linear", "is true, which is not supported");
  if (file.flag_or("use_long_context", false))
    throw file.error("use_long_context", "is true, which is not supported");
  const bool has_rope = file.flag_or("use_mem_rope", false);
  for (int i = 0; i < c.n_layers; ++i) {
    LayerConfig& layer = c.layers[static_cast<size_t>(i)];
    const bool is_hybrid = layer.has(kSharedTransformerPart);
    if (is_hybrid) s.layers.push_back(i);
    layer.parts.clear();
    if (is_hybrid) layer.parts.push_back({.kind = &kSharedTransformerPart});
    layer.parts.push_back({.kind = &kMamba2Part, .beside = is_hybrid});
    if (!has_rope) layer.rope = LayerRope::kNone;
  }
  if (s.layers.empty()) throw file.error("layers_block_type", "lists no layer of type hybrid");
  if (s.n_blocks > static_cast<int>(s.layers.size()))
    throw file.error("num_mem_blocks", "{} is more than the {} layers of type hybrid", s.n_blocks, s.layers.size());
  c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim) / 2);
  c.parts.set(s);
}

Block make(const Config& c, int layer) {
  B b{.norm = norm_of(c),
      .rope_table = c.layer(layer).rope == LayerRope::kNone ? kNoRope : kMainRope,
      .rope = {.angles = {}, .layout = c.rope_layout},
      .attention = attention_args(c, layer),
      .ffn_norm = norm_of(c),
      .act = c.arch->activation,
      .ffn_dim = c.ffn_dim,
      .adapter_rank = shared(c).adapter_rank};
  return b;
}

void share(Block& block, const Block& holder) {
  B& to = block.get<B>();
  const B& from = holder.get<B>();
  for (Weight B::*weight : {&B::wq, &B::wk, &B::wv, &B::wo, &B::w_gate_up, &B::w_down}) to.*weight = from.*weight;
  to.norm.weight = from.norm.weight, to.ffn_norm.weight = from.ffn_norm.weight;
}

}  // namespace
}  // namespace ingot::shared_transformer_part

namespace ingot {

const PartKind kSharedTransformerPart = {.name = "shared_transformer",
                                         .make = shared_transformer_part::make,
                                         .rows = shared_transformer_part::rows,
                                         .holder = shared_transformer_part::holder_of,
                                         .share = shared_transformer_part::share,
                                         .read_gguf = shared_transformer_part::read_gguf,
                                         .read_hf = shared_transformer_part::read_hf,
                                         .write_gguf = shared_transformer_part::write_gguf,
                                         .hf_layer_type = "hybrid",
                                         .keeps_kv = true};

}  // namespace ingot
