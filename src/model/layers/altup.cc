// The parts of a layer of Gemma 3n besides attention and feed-forward: prediction and correction of its streams, and
// LAuReL (backend/blocks/altup.h, laurel.h).
#include "model/config/altup.h"

#include <cmath>
#include <limits>

#include "backend/blocks/altup.h"
#include "backend/blocks/laurel.h"
#include "base/error.h"
#include "io/huggingface/config.h"
#include "model/config/gguf_reader.h"
#include "model/config/gguf_writer.h"
#include "model/config/layer_inputs.h"
#include "model/layers/joins.h"

namespace ingot::altup_part {
namespace {

using P = AltUpPredictBlock;
using C = AltUpCorrectBlock;
using L = LaurelBlock;
constexpr const char* kTableRows = "vocab_size_per_layer_input";  // in GGUF a key of ingot's own
constexpr int kMaxRank = 1 << 14, kMaxWidth = 1 << 14, kPublishedRank = 64;

const AltUpConfig& sizes(const Config& c) { return c.part<AltUpConfig>(); }
constexpr Dim kStreams = {[](const Config& c) -> int64_t { return sizes(c).n_streams; }};
constexpr Dim kPairs = {[](const Config& c) -> int64_t { return int64_t{sizes(c).n_streams} * sizes(c).n_streams; }};
constexpr Dim kRank = {[](const Config& c) -> int64_t { return sizes(c).laurel_rank; }};
constexpr Dim kWidth = {[](const Config& c) -> int64_t { return c.part<LayerInputsConfig>().width; }};

using WeightMember = Weight& (*)(void*);

// Both parts of a layer read the same router.
constexpr MatrixRow router_row(WeightMember member) {
  return {.gguf_name = "blk.{}.altup_router.weight", .hf_name = "model.layers.{}.altup.modality_router.weight",
          .member = member, .n_out = kStreams, .n_in = kModelDim};
}
constexpr VectorRow router_norm_row(VectorMember member) {
  return {.gguf_name = "blk.{}.altup_router_norm.weight", .hf_name = "model.layers.{}.altup.router_norm.weight",
          .member = member, .n = kModelDim};
}

constexpr MatrixRow kPredictMatrices[] = {
    router_row(at<&P::router, &AltUpRouter::w>),
    {.gguf_name = "blk.{}.altup_predict_coef.weight", .hf_name = "model.layers.{}.altup.prediction_coefs.weight",
     .member = at<&P::w_coefs>, .n_out = kPairs, .n_in = kStreams},
};
constexpr VectorRow kPredictVectors[] = {router_norm_row(at<&P::router, &AltUpRouter::norm, &NormArgs::weight>)};

constexpr MatrixRow kCorrectMatrices[] = {
    router_row(at<&C::router, &AltUpRouter::w>),
    {.gguf_name = "blk.{}.altup_correct_coef.weight", .hf_name = "model.layers.{}.altup.correction_coefs.weight",
     .member = at<&C::w_coefs>, .n_out = kStreams, .n_in = kStreams},
    {.gguf_name = "blk.{}.inp_gate.weight", .hf_name = "model.layers.{}.per_layer_input_gate.weight",
     .member = at<&C::w_gate>, .n_out = kWidth, .n_in = kModelDim},
    {.gguf_name = "blk.{}.proj.weight", .hf_name = "model.layers.{}.per_layer_projection.weight",
     .member = at<&C::w_out>, .n_out = kModelDim, .n_in = kWidth},
};
constexpr VectorRow kCorrectVectors[] = {
    router_norm_row(at<&C::router, &AltUpRouter::norm, &NormArgs::weight>),
    {.gguf_name = "blk.{}.altup_correct_scale.weight", .hf_name = "model.layers.{}.altup.correct_output_scale",
     .member = at<&C::x_scale>, .n = kModelDim, .when = [](const Config& c, int) { return sizes(c).scales_x; }},
    {.gguf_name = "blk.{}.post_norm.weight", .hf_name = "model.layers.{}.post_per_layer_input_norm.weight",
     .member = at<&C::post_norm, &NormArgs::weight>, .n = kModelDim},
};

constexpr MatrixRow kLaurelMatrices[] = {
    {.gguf_name = "blk.{}.laurel_l.weight", .hf_name = "model.layers.{}.laurel.linear_left.weight",
     .member = at<&L::w_left>, .n_out = kRank, .n_in = kModelDim},
    {.gguf_name = "blk.{}.laurel_r.weight", .hf_name = "model.layers.{}.laurel.linear_right.weight",
     .member = at<&L::w_right>, .n_out = kModelDim, .n_in = kRank},
};
constexpr VectorRow kLaurelVectors[] = {
    mixer_norm(at<&L::norm, &NormArgs::weight>),
    {.gguf_name = "blk.{}.laurel_post_norm.weight", .hf_name = "model.layers.{}.laurel.post_laurel_norm.weight",
     .member = at<&L::post_norm, &NormArgs::weight>, .n = kModelDim},
};

void read_gguf(const GgufKeys& keys, Config& c) {
  AltUpConfig own{.n_streams = keys.integer_or("altup.num_inputs", 4, 2, kMaxStreams)};
  if (const int active = keys.integer_or("altup.active_idx", 0, 0, kMaxStreams); active != 0)
    throw keys.error("altup.active_idx", "{}: only models whose layers change stream 0 are supported", active);
  own.laurel_rank = keys.integer_or("laurel.rank", kPublishedRank, 1, kMaxRank);
  if (const auto all = keys.metadata().find_f32_per_layer(keys.name("activation_sparsity_scale"), c.n_layers))
    own.deviations = *all;
  c.parts.set(own);
  const int width = keys.integer("embedding_length_per_layer_input", 1, kMaxWidth);
  c.parts.set(LayerInputsConfig{.width = width, .n_rows = keys.integer_or(kTableRows, 0, 0, 1 << 24)});
}

// The number of standard deviations above the mean that a share p of a normal distribution does not reach.
float deviations_of(double p) {
  if (p <= 0) return -std::numeric_limits<float>::infinity();
  double low = -10, high = 10;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle * std::sqrt(0.5)) < p ? low : high) = middle;
  }
  return static_cast<float>(low);
}

// By default, of models of more than 10 layers.
constexpr int kSparseLayers = 10;
constexpr float kUsualSparsity = 0.95f;

void read_hf(const HfConfig& file, Config& c) {
  AltUpConfig own{.n_streams = file.integer_or("altup_num_inputs", 4, 2, kMaxStreams),
                  .scales_x = file.flag_or("altup_correct_scale", true),
                  .laurel_rank = file.integer_or("laurel_rank", kPublishedRank, 1, kMaxRank)};
  if (const int active = file.integer_or("altup_active_idx", 0, 0, own.n_streams - 1); active != 0)
    throw file.error("altup_active_idx", "{}: only models whose layers change stream 0 are supported", active);
  std::vector<float> sparsity = file.numbers("activation_sparsity_pattern");
  if (sparsity.empty()) {
    sparsity.resize(static_cast<size_t>(c.n_layers));
    if (c.n_layers > kSparseLayers) std::fill_n(sparsity.begin(), kSparseLayers, kUsualSparsity);
  }
  if (sparsity.size() != static_cast<size_t>(c.n_layers))
    throw file.error("activation_sparsity_pattern", "{} elements for {} layers", sparsity.size(), c.n_layers);
  for (const float p : sparsity) {
    if (!(p >= 0 && p < 1))
      throw file.error("activation_sparsity_pattern", "{} is out of range: expected shares from 0 to less than 1", p);
    own.deviations.push_back(deviations_of(p));
  }
  c.parts.set(own);
  c.parts.set(LayerInputsConfig{.width = file.integer_or("hidden_size_per_layer_input", 256, 1, kMaxWidth),
                                .n_rows = file.integer_or(kTableRows, 0, 1, c.n_vocab)});
}

void write_gguf(const Config& c, const GgufKeyWriter& keys) {
  keys.count("altup.num_inputs", sizes(c).n_streams);
  keys.count("altup.active_idx", 0);
  if (sizes(c).laurel_rank != kPublishedRank) keys.count("laurel.rank", sizes(c).laurel_rank);
  if (!sizes(c).deviations.empty()) keys.set("activation_sparsity_scale", sizes(c).deviations);
  const auto& inputs = c.part<LayerInputsConfig>();
  keys.count("embedding_length_per_layer_input", inputs.width);
  if (inputs.n_rows > 0 && inputs.n_rows != c.n_vocab) keys.count(kTableRows, inputs.n_rows);
}

Block make_predict(const Config& c, int) {
  return P{.n_streams = sizes(c).n_streams, .router = {.norm = norm_of(c), .w = {}}};
}

Block make_correct(const Config& c, int layer) {
  return C{.n_streams = sizes(c).n_streams,
           .router = {.norm = norm_of(c), .w = {}},
           .width = c.part<LayerInputsConfig>().width,
           .layer = layer,
           .post_norm = norm_of(c),
           .act = c.activation.value_or(c.arch->activation)};
}

Block make_laurel(const Config& c, int) {
  return L{.norm = norm_of(c), .post_norm = norm_of(c), .rank = sizes(c).laurel_rank};
}

}  // namespace
}  // namespace ingot::altup_part

namespace ingot {

extern const PartKind kAltUpPredictPart, kAltUpCorrectPart, kLaurelPart;
const PartKind kAltUpPredictPart = {
    .name = "altup_predict",
    .is_mixer = false,
    .make = altup_part::make_predict,
    .rows = [] { return TensorRows{altup_part::kPredictMatrices, altup_part::kPredictVectors}; },
    .read_gguf = altup_part::read_gguf,
    .read_hf = altup_part::read_hf,
    .write_gguf = altup_part::write_gguf};
const PartKind kAltUpCorrectPart = {
    .name = "altup_correct", .is_mixer = false, .make = altup_part::make_correct, .rows = [] {
      return TensorRows{altup_part::kCorrectMatrices, altup_part::kCorrectVectors};
    }};
const PartKind kLaurelPart = {.name = "laurel", .is_mixer = false, .make = altup_part::make_laurel, .rows = [] {
                                return TensorRows{altup_part::kLaurelMatrices, altup_part::kLaurelVectors};
                              }};

}  // namespace ingot
