// Attention with keys and values of each token.
#include "backend/blocks/attention.h"

#include <numeric>

#include "base/error.h"
#include "model/config/gguf_reader.h"
#include "model/config/multipliers.h"
#include "model/config/shards.h"
#include "model/files/weights.h"
#include "model/layers/joins.h"

namespace ingot::attention_part {
namespace {

using B = AttentionBlock;

std::vector<Range> own_heads(const Config& rank) { return scaled(rank.share->heads, rank.head_dim); }
std::vector<Range> own_kv_heads(const Config& rank) { return scaled(rank.share->kv_heads, rank.head_dim); }
int64_t q_size(const Config& c) { return c.q_dim(); }
int64_t kv_size(const Config& c) { return c.kv_dim(); }
int64_t q_and_kv_size(const Config& c) { return c.q_dim() + c.kv_dim(); }
int64_t three_sizes(const Config& c) { return c.q_dim() + 2 * c.kv_dim(); }
int64_t two_q_sizes(const Config& c) { return 2 * c.q_dim(); }
int64_t head_count(const Config& c) { return c.n_heads; }
int64_t head_size(const Config& c) { return c.head_dim; }

constexpr Dim kQ = {q_size, own_heads}, kKv = {kv_size, own_kv_heads};
constexpr Dim kInput = {[](const Config& c) -> int64_t { return (c.reads_pair ? 2 : 1) * int64_t{c.dim}; }};
constexpr Dim kQNorm = {[](const Config& c) -> int64_t { return c.arch->norms_all_heads ? c.q_dim() : c.head_dim; }};
constexpr Dim kKNorm = {[](const Config& c) -> int64_t { return c.arch->norms_all_heads ? c.kv_dim() : c.head_dim; }};
// The gate has a number for each column of the output, or for each head.
constexpr Dim kGate = {
    [](const Config& c) -> int64_t { return c.gates_heads ? c.n_heads : c.q_dim(); },
    [](const Config& rank) { return scaled(rank.share->heads, rank.gates_heads ? 1 : rank.head_dim); }};
constexpr Dim kHeads = {head_count, [](const Config& rank) { return std::vector<Range>{rank.share->heads}; }};

std::vector<int32_t> rotated(const Config& c, int64_t n) { return rope_order(c, n, c.head_dim, 0); }

bool is_gated(const Config& c, int) { return c.arch->gates_attention; }
bool has_own_gate(const Config& c, int) { return c.arch->gates_outputs; }
bool is_split(const Config& c, int) { return !c.arch->gates_attention && !c.arch->fused; }
bool has_own_keys(const Config& c, int layer) { return c.layer(layer).kv_layer < 0; }
bool is_split_with_keys(const Config& c, int layer) { return is_split(c, layer) && has_own_keys(c, layer); }
// Layers without a window may lack the matrix of values (Arch::values_may_be_keys).
bool may_lack_values(const Config& c) { return c.arch->values_may_be_keys; }
bool is_gated_with_keys(const Config& c, int layer) { return is_gated(c, layer) && has_own_keys(c, layer); }
// Encoders of one architecture may have q, k and v in one matrix or in three.
bool may_be_fused(const Config& c, int) { return c.arch->fused || c.arch->encoder; }
bool unless_fused(const Config& c) { return !c.arch->fused; }

constexpr Slice kQOfThree = {three_sizes}, kKOfThree = {three_sizes, q_size}, kVOfThree = {three_sizes, q_and_kv_size};
// Each head has a query and a gate.
constexpr Slice kQueryOfHead = {.total = two_q_sizes, .groups = head_count},
                kGateOfHead = {.total = two_q_sizes, .first = head_size, .groups = head_count};

// Names in decoders; BERT; Nomic's files; ModernBERT; LFM2; Nemotron-H. `kind`: weight or bias.
#define QKV_NAMES(kind) \
  "model.layers.{}.self_attn.qkv_proj." kind "|model.encoder.layers.{}.attn.Wqkv." kind "|model.layers.{}.attn.Wqkv." kind
#define PROJECTION_NAMES(decoder, bert, kind) \
  "model.layers.{}.self_attn." decoder "_proj." kind "|model.encoder.layer.{}.attention.self." bert "." kind \
  "|backbone.layers.{}.mixer." decoder "_proj." kind "|model.layers.{}.temporal_block." decoder "_proj." kind
#define HEAD_NORM_NAMES(of, word)                                                                   \
  "model.layers.{}.self_attn." of "_norm.weight|model.layers.{}.self_attn." of "_layernorm.weight|" \
  "model.layers.{}.self_attn." word "_layernorm.weight"
#define OUTPUT_NAMES(kind)                                                                         \
  "model.layers.{}.self_attn.o_proj." kind "|model.encoder.layer.{}.attention.output.dense." kind \
  "|model.encoder.layers.{}.attn.out_proj." kind "|model.layers.{}.attn.Wo." kind                \
  "|model.layers.{}.self_attn.out_proj." kind "|backbone.layers.{}.mixer.o_proj." kind \
  "|model.layers.{}.temporal_block.o_proj." kind
#define ATTENTION_SUM_NAMES(kind, old)                                                                                \
  "model.encoder.layer.{}.attention.output.LayerNorm." kind "|model.encoder.layer.{}.attention.output.LayerNorm." old \
  "|model.layers.{}.post_attention_layernorm." kind "|model.encoder.layers.{}.norm1." kind

float input_factor(const Config& c, int64_t) { return c.part<Multipliers>().attention_in; }
float key_factor(const Config& c, int64_t) { return c.part<Multipliers>().attention_in * c.part<Multipliers>().key; }
float output_factor(const Config& c, int64_t) { return c.part<Multipliers>().attention_out; }

constexpr MatrixRow fused_row(Weight& (*member)(void*), const Dim& n_out, const Slice& slice) {
  return {.gguf_name = "blk.{}.attn_qkv.weight", .hf_name = QKV_NAMES("weight"),
          .member = member, .n_out = n_out, .n_in = kInput, .shard = Shard::kColumns,
          .optional = unless_fused, .when = may_be_fused, .gguf_slice = slice, .hf_slice = slice};
}
constexpr VectorRow fused_bias(Tensor& (*member)(void*), const Dim& n, const Slice& slice) {
  return {.gguf_name = "blk.{}.attn_qkv.bias", .hf_name = QKV_NAMES("bias"),
          .member = member, .n = n, .shard = Shard::kColumns,
          .optional = kOptional, .when = may_be_fused, .gguf_slice = slice, .hf_slice = slice};
}

constexpr MatrixRow kMatrices[] = {
    fused_row(at<&B::wq>, kQ, kQOfThree),
    fused_row(at<&B::wk>, kKv, kKOfThree),
    fused_row(at<&B::wv>, kKv, kVOfThree),
    {.gguf_name = "blk.{}.attn_q.weight", .hf_name = PROJECTION_NAMES("q", "query", "weight"),
     .member = at<&B::wq>, .n_out = kQ, .n_in = kInput, .shard = Shard::kColumns, .when = is_split,
     .gguf_rows = rotated, .gguf_factor = input_factor},
    {.gguf_name = "blk.{}.attn_k.weight", .hf_name = PROJECTION_NAMES("k", "key", "weight"),
     .member = at<&B::wk>, .n_out = kKv, .n_in = kInput, .shard = Shard::kColumns, .when = is_split_with_keys,
     .gguf_rows = rotated, .gguf_factor = key_factor},
    {.gguf_name = "blk.{}.attn_v.weight", .hf_name = PROJECTION_NAMES("v", "value", "weight"),
     .member = at<&B::wv>, .n_out = kKv, .n_in = kInput, .shard = Shard::kColumns, .optional = may_lack_values,
     .when = is_split_with_keys, .gguf_factor = input_factor},
    {.gguf_name = "blk.{}.attn_q.weight", .hf_name = "model.layers.{}.self_attn.q_proj.weight",
     .member = at<&B::wq>, .n_out = kQ, .n_in = kModelDim, .shard = Shard::kColumns,
     .when = is_gated, .gguf_slice = kQueryOfHead, .hf_slice = kQueryOfHead},
    {.gguf_name = "blk.{}.attn_q.weight", .hf_name = "model.layers.{}.self_attn.q_proj.weight",
     .member = at<&B::gate>, .n_out = kQ, .n_in = kModelDim, .shard = Shard::kColumns,
     .when = is_gated, .gguf_slice = kGateOfHead, .hf_slice = kGateOfHead},
    {.gguf_name = "blk.{}.attn_k.weight", .hf_name = "model.layers.{}.self_attn.k_proj.weight",
     .member = at<&B::wk>, .n_out = kKv, .n_in = kModelDim, .shard = Shard::kColumns, .when = is_gated_with_keys},
    {.gguf_name = "blk.{}.attn_v.weight", .hf_name = "model.layers.{}.self_attn.v_proj.weight",
     .member = at<&B::wv>, .n_out = kKv, .n_in = kModelDim, .shard = Shard::kColumns, .when = is_gated_with_keys},
    {.gguf_name = "blk.{}.attn_gate.weight",
     .hf_name = "model.layers.{}.self_attn.gate_proj.weight|model.layers.{}.self_attn.g_proj.weight",
     .member = at<&B::gate>, .n_out = kGate, .n_in = kModelDim, .shard = Shard::kColumns, .when = has_own_gate},
    {.gguf_name = "blk.{}.attn_output.weight", .hf_name = OUTPUT_NAMES("weight"),
     .member = at<&B::wo>, .n_out = kModelDim, .n_in = kQ, .shard = Shard::kRows, .gguf_factor = output_factor},
};

constexpr VectorRow kVectors[] = {
    mixer_norm(at<&B::norm, &NormArgs::weight>),
    mixer_norm_bias(at<&B::norm, &NormArgs::bias>),
    {.gguf_name = "blk.{}.attn_output_norm.weight", .hf_name = ATTENTION_SUM_NAMES("weight", "gamma"),
     .member = at<&B::join, &Join::sum_norm, &NormArgs::weight>, .n = kModelDim, .when = has_sum_norms},
    {.gguf_name = "blk.{}.attn_output_norm.bias", .hf_name = ATTENTION_SUM_NAMES("bias", "beta"),
     .member = at<&B::join, &Join::sum_norm, &NormArgs::bias>, .n = kModelDim,
     .optional = kOptional, .when = has_sum_norms},
    fused_bias(at<&B::bq>, kQ, kQOfThree),
    fused_bias(at<&B::bk>, kKv, kKOfThree),
    fused_bias(at<&B::bv>, kKv, kVOfThree),
    {.gguf_name = "blk.{}.attn_q.bias", .hf_name = PROJECTION_NAMES("q", "query", "bias"),
     .member = at<&B::bq>, .n = kQ, .shard = Shard::kColumns, .optional = kOptional, .when = is_split,
     .gguf_rows = rotated},
    {.gguf_name = "blk.{}.attn_k.bias", .hf_name = PROJECTION_NAMES("k", "key", "bias"),
     .member = at<&B::bk>, .n = kKv, .shard = Shard::kColumns, .optional = kOptional, .when = is_split_with_keys,
     .gguf_rows = rotated},
    {.gguf_name = "blk.{}.attn_v.bias", .hf_name = PROJECTION_NAMES("v", "value", "bias"),
     .member = at<&B::bv>, .n = kKv, .shard = Shard::kColumns, .optional = kOptional, .when = is_split_with_keys},
    {.gguf_name = "blk.{}.attn_q_norm.weight", .hf_name = HEAD_NORM_NAMES("q", "query"),
     .member = at<&B::q_norm, &NormArgs::weight>, .n = kQNorm, .optional = kOptional, .hf_kept = VectorRow::kLessOne,
     .gguf_rows = rotated},
    {.gguf_name = "blk.{}.attn_k_norm.weight", .hf_name = HEAD_NORM_NAMES("k", "key"),
     .member = at<&B::k_norm, &NormArgs::weight>, .n = kKNorm, .optional = kOptional, .when = has_own_keys,
     .hf_kept = VectorRow::kLessOne,
     .gguf_rows = rotated},
    {.gguf_name = "blk.{}.attn_sinks.weight", .hf_name = "model.layers.{}.self_attn.sinks",
     .member = at<&B::attention, &AttentionArgs::sinks>, .n = kHeads, .shard = Shard::kColumns, .optional = kOptional},
    {.gguf_name = "blk.{}.attn_output.bias", .hf_name = OUTPUT_NAMES("bias"),
     .member = at<&B::bo>, .n = kModelDim, .shard = Shard::kOnce, .optional = kOptional},
    mixer_post_norm(at<&B::join, &Join::post_norm, &NormArgs::weight>),
};

// Ollama's files of hybrid models list this as attention.head_count_kv for recurrent layers.
constexpr uint32_t kNoHeads = 0;

// Whether layers have different numbers of heads.
bool lists_heads(const GgufKeys& keys) {
  const auto differ = [&](const char* key) {
    const Value* value = keys.metadata().find(keys.name(key));
    if (value == nullptr || !value->is_array()) return false;
    const auto list =
        *keys.metadata().find_u32_per_layer(keys.name(key), keys.metadata().get_u32(keys.name("block_count")));
    return std::ranges::any_of(list, [&](uint32_t n) { return n != list[0] && n != kNoHeads && list[0] != kNoHeads; });
  };
  return differ("attention.head_count") || differ("attention.head_count_kv");
}

// Layers with different heads. The heads of the model are those of the last layer without a window.
void read_heads(const GgufKeys& keys, Config& c) {
  const int n = c.n_layers;
  const std::vector<int> heads = keys.integers_of_layers("attention.head_count", 1, 4096, n);
  const std::vector<int> kv = keys.has("attention.head_count_kv")
                                  ? keys.integers_of_layers("attention.head_count_kv", 1, 4096, n)
                                  : heads;
  const auto length = [&](const char* key, const char* value_key, int fallback) {
    const int size = fallback > 0 ? keys.integer_or(key, fallback, 2, 1024) : keys.integer(key, 2, 1024);
    if (const int value = keys.integer_or(value_key, size, 2, 1024); value != size)
      throw keys.error(value_key, "{} differs from {} {}: not supported", value, key, size);
    return size;
  };
  int main = n - 1;
  while (main > 0 && c.layers[main].window > 0) --main;
  if (c.layers[main].window > 0) main = n - 1;
  const int usual = c.dim % heads[main] == 0 ? c.dim / heads[main] : 0;
  const int wide = length("attention.key_length", "attention.value_length", usual);
  const int narrow = length("attention.key_length_swa", "attention.value_length_swa", wide);
  const auto of_layer = [&](int i) { return LayerHeads{heads[i], kv[i], c.layers[i].window > 0 ? narrow : wide}; };
  const LayerHeads own = of_layer(main);
  c.n_heads = own.n_heads, c.n_kv_heads = own.n_kv_heads, c.head_dim = own.head_dim;
  for (int i = 0; i < n; ++i) {
    const LayerHeads of = of_layer(i);
    if (of.n_heads % of.n_kv_heads != 0)
      throw keys.error("attention.head_count", "{} of layer {} is not a multiple of attention.head_count_kv {}",
                       of.n_heads, i, of.n_kv_heads);
    if (of != own) c.layers[i].heads = of;
  }
  if (narrow != own.head_dim) c.local_rot_dim = narrow;
}

void read_gguf(const GgufKeys& keys, Config& c) {
  if (keys.metadata().contains(keys.name("attention.key_length_swa")) || lists_heads(keys)) return read_heads(keys, c);
  c.n_heads = keys.integer_of_layers("attention.head_count", 1, 4096);
  const auto skip = state_mixer(*c.arch) != nullptr ? std::optional(kNoHeads) : std::nullopt;
  c.n_kv_heads = keys.has("attention.head_count_kv")
                     ? keys.integer_of_layers("attention.head_count_kv", 1, c.n_heads, skip)
                     : c.n_heads;
  if (c.n_heads % c.n_kv_heads != 0)
    throw keys.error("attention.head_count", "{} is not a multiple of attention.head_count_kv {}", c.n_heads,
                     c.n_kv_heads);
  if (!keys.has("attention.key_length") && c.dim % c.n_heads != 0)
    throw keys.error("embedding_length",
                     "{} is not a multiple of attention.head_count {}, and attention.key_length is missing", c.dim,
                     c.n_heads);
  c.head_dim = keys.integer_or("attention.key_length", c.dim / c.n_heads, 2, 1024);
  const int value_dim = keys.integer_or("attention.value_length", c.head_dim, 2, 1024);
  if (value_dim != c.head_dim)
    throw keys.error("attention.value_length", "{} differs from attention.key_length {}: not supported", value_dim,
                     c.head_dim);
}

std::optional<HeadsOfRanks> heads_of_ranks(const Config& c) {
  if (!c.share || !c.arch->norms_all_heads) return std::nullopt;
  const Share& share = *c.share;
  return HeadsOfRanks{.q_dim = share.model.q_dim(),
                      .k_dim = share.model.kv_dim(),
                      .first_q = share.heads.first * c.head_dim,
                      .first_k = share.kv_heads.first * c.head_dim,
                      .adds_k = share.is_first_with_kv};
}

TensorRows rows() { return {kMatrices, kVectors}; }

Block make(const Config& c, int layer) {
  const LayerRope rope = c.layer(layer).rope;
  B b{.reads_pair = c.reads_pair, .norm = norm_of(c), .only_queries = !has_own_keys(c, layer)};
  b.q_norm.eps = b.k_norm.eps = b.v_norm.eps = c.norm_eps;
  b.norms_values = c.arch->norms_values;
  b.rope_table = rope == LayerRope::kNone ? kNoRope : rope == LayerRope::kLocal ? kLocalRope : kMainRope;
  b.rope.layout = c.rope_layout;
  b.attention = attention_args(c, layer);
  b.has_gate = c.arch->gates_attention || c.arch->gates_outputs;
  b.softplus_gate = c.arch->softplus_gate;
  // Llama 4's layers without rope have no norms of q and k.
  b.norms_heads = c.norms_heads.value_or(c.arch->norms_heads) && !(c.scales_without_rope && rope == LayerRope::kNone);
  b.norms_after_rope = c.arch->norms_after_rope;
  if (!c.scales_without_rope || rope == LayerRope::kNone) b.query_scale = c.query_scale;
  b.join = join_of(c, layer);
  const Multipliers& m = c.part<Multipliers>();
  b.attention.scale *= m.key * m.attention_in * m.attention_in;
  b.join.scale *= m.attention_in * m.attention_out;
  b.heads_of_ranks = heads_of_ranks(c);
  return b;
}

void check(Block& block, const Config& c, int layer, const WeightSource& source) {
  const B& b = block.get<B>();
  if (!b.wv && !b.only_queries && c.layer(layer).window > 0)
    throw Error("{}: the matrix of values of layer {} is missing", source.name(), layer);
  if (c.attention_bias && (!b.bq || (!b.only_queries && (!b.bk || !b.bv))))
    throw Error(
        "{}: config.json sets attention_bias, but layer {} lacks at least one of q_proj.bias, k_proj.bias and "
        "v_proj.bias",
        source.name(), layer);
}

// Ranks have neighbouring heads. If there are fewer heads of keys than ranks, some ranks have the same keys.
void divide(const Deal& d, Config& rank) {
  const Config& c = d.model;
  Share& share = d.share;
  const int64_t unit = heads_in_blocks(c.n_heads, c.head_dim, d.block), group = c.n_heads / c.n_kv_heads;
  if (c.n_kv_heads >= d.n_ranks) {
    const int64_t kv_unit = unit / std::gcd(unit, group);
    share.kv_heads = d.deal(c.n_kv_heads / kv_unit, kv_unit, "heads of keys and values");
    share.heads = {share.kv_heads.first * group, share.kv_heads.n * group};
  } else {
    if (d.n_ranks % c.n_kv_heads != 0)
      throw UsageError("{} ranks cannot share {} KV heads: use a number of ranks that is a multiple or a divisor of {}",
                       d.n_ranks, c.n_kv_heads, c.n_kv_heads);
    const int each = d.n_ranks / c.n_kv_heads;  // ranks that have the same keys
    const Deal of_group{c, share, d.rank % each, each, d.block, false, c.n_kv_heads};
    share.kv_heads = {d.rank / each, 1};
    share.heads = of_group.deal(group % unit == 0 ? group / unit : 1, group % unit == 0 ? unit : group, "heads");
    share.heads.first += share.kv_heads.first * group;
    share.is_first_with_kv = d.rank % each == 0;
  }
  rank.n_heads = static_cast<int>(share.heads.n);
  rank.n_kv_heads = static_cast<int>(share.kv_heads.n);
}

}  // namespace
}  // namespace ingot::attention_part

namespace ingot {

std::vector<int32_t> rope_order(const Config& c, int64_t n_rows, int head, int first) {
  if (c.arch->gguf_rope == c.rope_layout) return {};
  CHECK(c.arch->gguf_rope == RopeLayout::kInterleaved);
  std::vector<int32_t> order(static_cast<size_t>(n_rows));
  for (int32_t row = 0; row < static_cast<int32_t>(n_rows); ++row) {
    const int i = row % head - first;
    order[static_cast<size_t>(row)] = i >= 0 && i < c.rot_dim ? row - i + i / 2 + i % 2 * (c.rot_dim / 2) : row;
  }
  return order;
}

AttentionArgs attention_args(const Config& c, int layer) {
  return {.n_heads = c.n_heads,
          .n_kv_heads = c.n_kv_heads,
          .head_dim = c.head_dim,
          .scale = c.score_scale(),
          .softcap = c.attention_softcap,
          .window = c.layer(layer).window,
          .causal = !c.bidirectional,
          .sees_later = !c.images_see_all_in_windows || c.layer(layer).window > 0};
}

const PartKind kAttentionPart = {.name = "attention",
                                 .is_plain = true,
                                 .make = attention_part::make,
                                 .rows = attention_part::rows,
                                 .check = attention_part::check,
                                 .read_gguf = attention_part::read_gguf,
                                 .keeps_kv = true,
                                 .divide = attention_part::divide};

}  // namespace ingot
