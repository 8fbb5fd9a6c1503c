// Gated short convolutions (backend/blocks/short_conv.h): the layers of LFM2 that are not attention.
#include "model/layers/short_conv.h"

#include <algorithm>

#include "backend/blocks/short_conv.h"
#include "base/error.h"
#include "io/huggingface/config.h"
#include "model/config/gguf_reader.h"
#include "model/config/gguf_writer.h"
#include "model/config/shards.h"
#include "model/layers/joins.h"
#include "model/layers/listed_layers.h"

namespace ingot {
extern const PartKind kShortConvPart;
}
namespace ingot::short_conv_part {
namespace {

using B = ShortConvBlock;

const ShortConvConfig& conv(const Config& c) { return c.part<ShortConvConfig>(); }

std::vector<Range> own_channels(const Config& rank) { return {{conv(rank).first_channel, conv(rank).n_channels}}; }
std::vector<Range> own_columns(const Config& rank) {
  const ShortConvConfig& own = conv(rank);
  const int64_t all = conv(rank.share->model).n_channels;
  std::vector<Range> ranges;
  for (int64_t part = 0; part < 3; ++part) ranges.push_back({part * all + own.first_channel, own.n_channels});
  return merged(ranges);
}

constexpr Dim kChannels = {[](const Config& c) -> int64_t { return conv(c).n_channels; }, own_channels};
constexpr Dim kColumns = {[](const Config& c) -> int64_t { return 3 * int64_t{conv(c).n_channels}; }, own_columns};
constexpr Dim kWidth = {[](const Config& c) -> int64_t { return conv(c).width; }};

constexpr MatrixRow kMatrices[] = {
    {.gguf_name = "blk.{}.shortconv.in_proj.weight", .hf_name = "model.layers.{}.conv.in_proj.weight",
     .member = at<&B::w_in>, .n_out = kColumns, .n_in = kModelDim, .shard = Shard::kColumns},
    {.gguf_name = "blk.{}.shortconv.out_proj.weight", .hf_name = "model.layers.{}.conv.out_proj.weight",
     .member = at<&B::wo>, .n_out = kModelDim, .n_in = kChannels, .shard = Shard::kRows},
};

constexpr VectorRow kVectors[] = {
    mixer_norm(at<&B::norm, &NormArgs::weight>),
    {.gguf_name = "blk.{}.shortconv.conv.weight", .hf_name = "model.layers.{}.conv.conv.weight",
     .member = at<&B::conv>, .n = kWidth, .shard = Shard::kMatrices, .count = kChannels},
    mixer_post_norm(at<&B::join, &Join::post_norm, &NormArgs::weight>),
};

TensorRows rows() { return {kMatrices, kVectors}; }

void read_gguf(const GgufKeys& keys, Config& c) {
  c.parts.set(ShortConvConfig{.width = keys.integer("shortconv.l_cache", 2, kMaxConvWidth), .n_channels = c.dim});
  mark_layers_without_kv_heads(keys, c, kShortConvPart);
}

// The width of LFM2's dense feed-forwards, which may be stated before an adjustment.
int adjusted_ffn(const HfConfig& file, int stated) {
  if (!file.flag_or("block_auto_adjust_ff_dim", false)) return stated;
  const int multiple = file.integer_or("block_multiple_of", 256, 1, 1 << 20);
  const double wanted = file.factor_or("block_ffn_dim_multiplier", 1) * static_cast<double>(2 * int64_t{stated} / 3);
  if (wanted < 1 || wanted > 1 << 24)
    throw file.error("block_ffn_dim_multiplier", "makes feed-forwards of {} columns: expected 1 to {}", wanted,
                     1 << 24);
  return (static_cast<int>(wanted) + multiple - 1) / multiple * multiple;
}

// Without layer_types, full_attn_idxs lists the layers with attention; without either, all layers have it. LFM3's
// layers with a window are only in layer_types.
void mark_layers(const HfConfig& file, Config& c) {
  if (!file.layer_types.empty()) return;
  if (file.sliding_window > 0) throw file.error("layer_types", "is missing");
  const auto attention = file.integers("full_attn_idxs", 0, c.n_layers - 1);
  for (int i = 0; i < c.n_layers; ++i)
    set_mixer(c.layers[i], attention && std::ranges::count(*attention, i) == 0 ? kShortConvPart : kAttentionPart);
}

void read_hf(const HfConfig& file, Config& c) {
  if (file.flag_or("conv_bias", false)) throw file.error("conv_bias", "is true, which is not supported");
  const int width = file.integer_or("conv_L_cache", 0, 2, kMaxConvWidth);
  if (width == 0) throw file.error("conv_L_cache", "is missing");
  c.parts.set(ShortConvConfig{.width = width, .n_channels = c.dim});
  c.ffn_dim = adjusted_ffn(file, c.ffn_dim);
  mark_layers(file, c);
}

void write_gguf(const Config& c, const GgufKeyWriter& keys) { keys.count("shortconv.l_cache", conv(c).width); }

std::vector<StateBuffer> states(const Config& c) {
  return {{.name = "inputs", .rows = conv(c).width - 1, .cols = conv(c).n_channels}};
}

Block make(const Config& c, int layer) {
  return B{.norm = norm_of(c), .n_channels = conv(c).n_channels, .join = join_of(c, layer)};
}

void divide(const Deal& deal, Config& rank) {
  const Range own = deal.deal_columns(conv(deal.model).n_channels, "channels of short convolutions");
  rank.parts.set(ShortConvConfig{
      .width = conv(deal.model).width, .n_channels = static_cast<int>(own.n), .first_channel = own.first});
}

}  // namespace
}  // namespace ingot::short_conv_part

namespace ingot {

const PartKind kShortConvPart = {.name = "short_conv",
                                 .make = short_conv_part::make,
                                 .rows = short_conv_part::rows,
                                 .read_gguf = short_conv_part::read_gguf,
                                 .read_hf = short_conv_part::read_hf,
                                 .write_gguf = short_conv_part::write_gguf,
                                 .hf_layer_type = "conv",
                                 .states = short_conv_part::states,
                                 .divide = short_conv_part::divide};

}  // namespace ingot
