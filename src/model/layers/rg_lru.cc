// The recurrent mixers of Griffin (backend/blocks/rg_lru.h). Every rank computes all of them.
#include "model/layers/rg_lru.h"

#include <algorithm>

#include "backend/blocks/rg_lru.h"
#include "io/huggingface/config.h"
#include "model/config/gguf_reader.h"
#include "model/config/gguf_writer.h"
#include "model/layers/joins.h"
#include "model/layers/listed_layers.h"
#include "model/layers/short_conv.h"

namespace ingot {
extern const PartKind kRgLruPart;
}
namespace ingot::rg_lru_part {
namespace {

using B = RgLruBlock;

constexpr int kMaxLruWidth = 1 << 20;

const RgLruConfig& lru(const Config& c) { return c.part<RgLruConfig>(); }

constexpr Dim kWidth = {[](const Config& c) -> int64_t { return int64_t{lru(c).n_heads} * lru(c).head_dim; }};
constexpr Dim kHeads = {[](const Config& c) -> int64_t { return lru(c).n_heads; }};
constexpr Dim kHeadDim = {[](const Config& c) -> int64_t { return lru(c).head_dim; }};
constexpr Dim kConvWidth = {[](const Config& c) -> int64_t { return lru(c).conv_width; }};

#define BLOCK(name) "model.layers.{}.temporal_block." name
constexpr MatrixRow kMatrices[] = {
    {.gguf_name = "blk.{}.rec_y.weight", .hf_name = BLOCK("linear_y.weight"),
     .member = at<&B::w_y>, .n_out = kWidth, .n_in = kModelDim},
    {.gguf_name = "blk.{}.rec_x.weight", .hf_name = BLOCK("linear_x.weight"),
     .member = at<&B::w_x>, .n_out = kWidth, .n_in = kModelDim},
    {.gguf_name = "blk.{}.rec_input_gate.weight", .hf_name = "~" BLOCK("rg_lru.input_gate_weight"),
     .member = at<&B::w_input_gate>, .n_out = kHeadDim, .n_in = kHeadDim, .count = kHeads},
    {.gguf_name = "blk.{}.rec_decay_gate.weight", .hf_name = "~" BLOCK("rg_lru.recurrent_gate_weight"),
     .member = at<&B::w_decay_gate>, .n_out = kHeadDim, .n_in = kHeadDim, .count = kHeads},
    {.gguf_name = "blk.{}.rec_out.weight", .hf_name = BLOCK("linear_out.weight"),
     .member = at<&B::wo>, .n_out = kModelDim, .n_in = kWidth},
};

constexpr VectorRow kVectors[] = {
    mixer_norm(at<&B::norm, &NormArgs::weight>),
    {.gguf_name = "blk.{}.rec_y.bias", .hf_name = BLOCK("linear_y.bias"), .member = at<&B::b_y>, .n = kWidth},
    {.gguf_name = "blk.{}.rec_x.bias", .hf_name = BLOCK("linear_x.bias"), .member = at<&B::b_x>, .n = kWidth},
    {.gguf_name = "blk.{}.ssm_conv1d.weight", .hf_name = BLOCK("conv_1d.weight"),
     .member = at<&B::conv>, .n = kConvWidth, .count = kWidth},
    {.gguf_name = "blk.{}.ssm_conv1d.bias", .hf_name = BLOCK("conv_1d.bias"), .member = at<&B::conv_bias>,
     .n = kWidth},
    {.gguf_name = "blk.{}.rec_input_gate.bias", .hf_name = BLOCK("rg_lru.input_gate_bias"),
     .member = at<&B::b_input_gate>, .n = kHeadDim, .count = kHeads},
    {.gguf_name = "blk.{}.rec_decay_gate.bias", .hf_name = BLOCK("rg_lru.recurrent_gate_bias"),
     .member = at<&B::b_decay_gate>, .n = kHeadDim, .count = kHeads},
    {.gguf_name = "blk.{}.rec_decay", .hf_name = BLOCK("rg_lru.recurrent_param"), .member = at<&B::decay>,
     .n = kWidth},
    {.gguf_name = "blk.{}.rec_out.bias", .hf_name = BLOCK("linear_out.bias"), .member = at<&B::bo>, .n = kModelDim},
};
#undef BLOCK

TensorRows rows() { return {kMatrices, kVectors}; }

void read_gguf(const GgufKeys& keys, Config& c) {
  RgLruConfig r{.n_heads = keys.integer("rec.head_count", 1, 4096),
                .conv_width = keys.integer("ssm.conv_kernel", 2, kMaxConvWidth)};
  const int width = keys.integer("rec.width", 1, kMaxLruWidth);
  if (width % r.n_heads != 0)
    throw keys.error("rec.width", "{} is not a multiple of rec.head_count {}", width, r.n_heads);
  r.head_dim = width / r.n_heads;
  c.parts.set(r);
  mark_layers_without_kv_heads(keys, c, kRgLruPart);
}

// block_types repeats.
void read_hf(const HfConfig& file, Config& c) {
  RgLruConfig r{.n_heads = file.n_heads, .conv_width = file.integer_or("conv1d_width", 4, 2, kMaxConvWidth)};
  const int width = file.integer_or("lru_width", c.dim, 1, kMaxLruWidth);
  if (width % r.n_heads != 0)
    throw file.error("lru_width", "{} is not a multiple of num_attention_heads {}", width, r.n_heads);
  r.head_dim = width / r.n_heads;
  c.parts.set(r);
  if (c.ffn_dim % 2 != 0) throw file.error("intermediate_size", "{} is not an even number", c.ffn_dim);
  c.ffn_dim /= 2;  // the file counts gate and up
  const std::vector<std::string> types = file.texts("block_types");
  if (types.empty()) throw file.error("block_types", "is missing or empty");
  for (int i = 0; i < c.n_layers; ++i) {
    const std::string& type = types[static_cast<size_t>(i) % types.size()];
    if (type != "recurrent" && type != "attention")
      throw file.error("block_types", "'{}' is not supported: supported are recurrent and attention",
                       printable(type, 64));
    set_mixer(c.layers[i], type == "recurrent" ? kRgLruPart : kAttentionPart);
  }
}

void write_gguf(const Config& c, const GgufKeyWriter& keys) {
  keys.count("ssm.conv_kernel", lru(c).conv_width);
  keys.count("rec.head_count", lru(c).n_heads);
  keys.count("rec.width", lru(c).n_heads * lru(c).head_dim);
}

// The inputs of the convolution but the token's own, and each channel's state.
std::vector<StateBuffer> states(const Config& c) {
  const int64_t width = int64_t{lru(c).n_heads} * lru(c).head_dim;
  return {{.name = "inputs", .rows = lru(c).conv_width - 1, .cols = width}, {.name = "states", .cols = width}};
}

Block make(const Config& c, int layer) {
  B b{.norm = norm_of(c), .n_heads = lru(c).n_heads, .head_dim = lru(c).head_dim, .n_ids = lru(c).n_heads,
      .join = join_of(c, layer)};
  b.join.sums = false;
  return b;
}

}  // namespace
}  // namespace ingot::rg_lru_part

namespace ingot {

const PartKind kRgLruPart = {.name = "rg_lru",
                             .make = rg_lru_part::make,
                             .rows = rg_lru_part::rows,
                             .read_gguf = rg_lru_part::read_gguf,
                             .read_hf = rg_lru_part::read_hf,
                             .write_gguf = rg_lru_part::write_gguf,
                             .hf_layer_type = "linear_attention",
                             .states = rg_lru_part::states};

}  // namespace ingot
