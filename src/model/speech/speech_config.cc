#include "model/speech/speech_config.h"

#include "base/error.h"
#include "io/ctranslate2/model_bin.h"
#include "io/ggml/speech_file.h"
#include "io/json.h"
#include "model/speech/log_mel.h"

namespace ingot {
namespace {

constexpr int kMaxSpeechDim = 1 << 14, kMaxSpeechLayers = 256, kMaxSpeechHeads = 1 << 10, kMaxSpeechTokens = 1 << 20,
              kMaxSpeechRows = 1 << 13;

struct SizeRow {
  const char* name;  // config.json's
  int SpeechConfig::*size;
  int least, most;
};
constexpr SizeRow kSizes[] = {
    {"num_mel_bins", &SpeechConfig::n_mels, 1, kMaxMels},
    {"max_source_positions", &SpeechConfig::n_rows, 2, kMaxSpeechRows},
    {"d_model", &SpeechConfig::dim, 1, kMaxSpeechDim},
    {"encoder_layers", &SpeechConfig::n_encoder_layers, 1, kMaxSpeechLayers},
    {"encoder_attention_heads", &SpeechConfig::n_encoder_heads, 1, kMaxSpeechHeads},
    {"encoder_ffn_dim", &SpeechConfig::encoder_ffn, 1, kMaxSpeechDim * 8},
    {"decoder_layers", &SpeechConfig::n_decoder_layers, 1, kMaxSpeechLayers},
    {"decoder_attention_heads", &SpeechConfig::n_decoder_heads, 1, kMaxSpeechHeads},
    {"decoder_ffn_dim", &SpeechConfig::decoder_ffn, 1, kMaxSpeechDim * 8},
    {"max_target_positions", &SpeechConfig::n_ctx, 8, kMaxSpeechTokens},
    {"vocab_size", &SpeechConfig::n_vocab, 16, kMaxSpeechTokens},
};

SpeechConfig checked(SpeechConfig c) {
  for (const SizeRow& row : kSizes)
    if (const int value = c.*row.size; value < row.least || value > row.most)
      throw Error("{}: {} is {}: expected {} to {}", printable(c.source), row.name, value, row.least, row.most);
  for (const int n_heads : {c.n_encoder_heads, c.n_decoder_heads})
    if (c.dim % n_heads != 0)
      throw Error("{}: {} heads do not divide {} dimensions", printable(c.source), n_heads, c.dim);
  return c;
}

// The size of a dimension of a variable; d < 0 counts from the end.
int size_of(const Ct2Model& model, const char* name, int d) {
  const Ct2Variable* v = model.find(name);
  const int n_dims = v == nullptr ? 0 : static_cast<int>(v->shape.size());
  const int at = d < 0 ? n_dims + d : d;
  if (at < 0 || at >= n_dims)
    throw Error("{}: variable '{}' is missing or has too few dimensions", printable(model.name()), name);
  return static_cast<int>(v->shape[static_cast<size_t>(at)]);
}

int count_layers(const Ct2Model& model, const char* pattern) {
  int n = 0;
  while (n <= kMaxSpeechLayers && model.find(fmt::format(fmt::runtime(pattern), n)) != nullptr) ++n;
  return n;
}

int heads_of(const Ct2Model& model, const char* name, int dim) {
  constexpr int kUsualHeadDim = 64;
  const Ct2Variable* v = model.find(name);
  return v == nullptr ? dim / kUsualHeadDim : static_cast<int>(v->integer());
}

}  // namespace

int SpeechConfig::n_samples() const { return n_frames() * kFrameStep; }

SpeechConfig speech_config_from_hf(const Json& root, const std::string& source) {
  SpeechConfig c{.source = source};
  for (const SizeRow& row : kSizes) c.*row.size = static_cast<int>(root.at(row.name).integer(row.least, row.most));
  if (const auto act = root.find("activation_function"); act && act->string() != "gelu")
    throw act->error("is not supported: expected gelu");
  if (const auto scales = root.find("scale_embedding"); scales && scales->boolean())
    throw scales->error("is not supported: expected false");
  return checked(std::move(c));
}

SpeechConfig speech_config_from_ct2(const Ct2Model& model) {
  if (model.spec() != "WhisperSpec")
    throw Error("{}: a CTranslate2 model of kind {}: expected WhisperSpec", printable(model.name()),
                printable(model.spec()));
  SpeechConfig c{.source = model.name()};
  c.dim = size_of(model, "encoder/conv1/weight", 0);
  c.n_mels = size_of(model, "encoder/conv1/weight", 1);
  c.n_rows = size_of(model, "encoder/position_encodings/encodings", -2);
  c.n_ctx = size_of(model, "decoder/position_encodings/encodings", -2);
  c.n_vocab = size_of(model, "decoder/embeddings/weight", 0);
  c.n_encoder_layers = count_layers(model, "encoder/layer_{}/ffn/linear_0/weight");
  c.n_decoder_layers = count_layers(model, "decoder/layer_{}/ffn/linear_0/weight");
  c.encoder_ffn = size_of(model, "encoder/layer_0/ffn/linear_0/weight", 0);
  c.decoder_ffn = size_of(model, "decoder/layer_0/ffn/linear_0/weight", 0);
  c.n_encoder_heads = heads_of(model, "encoder/num_heads", c.dim);
  c.n_decoder_heads = heads_of(model, "decoder/num_heads", c.dim);
  return checked(std::move(c));
}

SpeechConfig speech_config_from_ggml(const GgmlSpeechFile& file) {
  const GgmlSpeechFile::Sizes& s = file.sizes();
  if (s.audio_dim != s.text_dim)
    throw Error("{}: the encoder has {} dimensions and the decoder {}: expected the same", printable(file.name()),
                s.audio_dim, s.text_dim);
  const auto ffn_of = [&](const char* name) {
    const GgmlTensor* t = file.find(name);
    return t == nullptr || t->shape.size() < 2 ? 4 * s.audio_dim : static_cast<int>(t->shape[0]);
  };
  return checked({.source = file.name(),
                  .n_mels = s.n_mels,
                  .n_rows = s.n_audio_ctx,
                  .dim = s.audio_dim,
                  .n_encoder_layers = s.n_audio_layers,
                  .n_encoder_heads = s.n_audio_heads,
                  .encoder_ffn = ffn_of("encoder.blocks.0.mlp.0.weight"),
                  .n_decoder_layers = s.n_text_layers,
                  .n_decoder_heads = s.n_text_heads,
                  .decoder_ffn = ffn_of("decoder.blocks.0.mlp.0.weight"),
                  .n_ctx = s.n_text_ctx,
                  .n_vocab = s.n_vocab});
}

}  // namespace ingot
