// The end of a layer (backend/blocks/layer_end.h).

#include "backend/blocks/layer_end.h"
#include "base/error.h"
#include "io/huggingface/config.h"
#include "model/config/gguf_reader.h"
#include "model/config/gguf_writer.h"
#include "model/config/layer_inputs.h"
#include "model/layers/joins.h"

namespace ingot::layer_end_part {
namespace {

using B = LayerEndBlock;
constexpr int kMaxWidth = 1 << 14;

int width_of(const Config& c) { return c.part<LayerInputsConfig>().width; }
bool has_input(const Config& c, int) { return width_of(c) > 0; }
constexpr Dim kWidth = {[](const Config& c) -> int64_t { return width_of(c); }};

constexpr MatrixRow kMatrices[] = {
    {.gguf_name = "blk.{}.inp_gate.weight", .hf_name = "model.layers.{}.per_layer_input_gate.weight",
     .member = at<&B::w_gate>, .n_out = kWidth, .n_in = kModelDim, .when = has_input},
    {.gguf_name = "blk.{}.proj.weight", .hf_name = "model.layers.{}.per_layer_projection.weight",
     .member = at<&B::w_out>, .n_out = kModelDim, .n_in = kWidth, .when = has_input},
};

constexpr VectorRow kVectors[] = {
    {.gguf_name = "blk.{}.post_norm.weight", .hf_name = "model.layers.{}.post_per_layer_input_norm.weight",
     .member = at<&B::post_norm, &NormArgs::weight>, .n = kModelDim, .when = has_input,
     .hf_kept = VectorRow::kLessOne},
    {.gguf_name = "blk.{}.layer_output_scale.weight", .hf_name = "model.layers.{}.layer_scalar",
     .scalar = at<&B::scale>, .n = kOne, .optional = kOptional},
};

void read_gguf(const GgufKeys& keys, Config& c) {
  c.parts.set(LayerInputsConfig{.width = keys.integer_or("embedding_length_per_layer_input", 0, 0, kMaxWidth)});
}

void read_hf(const HfConfig& file, Config& c) {
  const int width = file.integer_or("hidden_size_per_layer_input", 0, 0, kMaxWidth);
  const int n_rows = file.integer_or("vocab_size_per_layer_input", c.n_vocab, 1, 1 << 24);
  if (width > 0 && n_rows != c.n_vocab)
    throw file.error("vocab_size_per_layer_input", "{} differs from vocab_size {}: not supported", n_rows, c.n_vocab);
  c.parts.set(LayerInputsConfig{.width = width});
}

void write_gguf(const Config& c, const GgufKeyWriter& keys) {
  keys.count("embedding_length_per_layer_input", width_of(c));
}

Block make(const Config& c, int layer) {
  return B{.width = width_of(c),
           .layer = layer,
           .post_norm = norm_of(c),
           .act = c.activation.value_or(c.arch->activation)};
}

}  // namespace
}  // namespace ingot::layer_end_part

namespace ingot {

extern const PartKind kLayerEndPart;
const PartKind kLayerEndPart = {
    .name = "layer_end",
    .is_mixer = false,
    .make = layer_end_part::make,
    .rows = [] { return TensorRows{layer_end_part::kMatrices, layer_end_part::kVectors}; },
    .read_gguf = layer_end_part::read_gguf,
    .read_hf = layer_end_part::read_hf,
    .write_gguf = layer_end_part::write_gguf};

}  // namespace ingot
